# /// script
# dependencies = ["torch", "onnxscript", "numpy"]
# ///
"""Calls exported programs, whose `torch.onnx.ONNXProgram` runs them, in float32, float16 and bfloat16."""

import numpy as np
import torch

torch.manual_seed(0)


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.linear = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Linear(8, 5)

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        features = torch.relu(self.convolution(images)).mean((2, 3))
        logits = self.linear(features)
        return {"logits": logits, "labels": logits.argmax(-1), "norms": features.norm(dim=-1)}


batch = torch.export.Dim("batch")
network, images = Network().eval(), torch.randn(4, 3, 16, 16)
for dtype in (torch.float32, torch.float16):
    program = torch.onnx.export(
        network.to(dtype), (images[:2].to(dtype),), dynamo=True, dynamic_shapes=({0: batch},), verbose=False
    )
    for count in (2, 4):
        results = program(images[:count].to(dtype))
        for result in results:
            print(result.dtype, tuple(result.shape), np.round(result.double().numpy(), 2 if dtype.itemsize < 4 else 4))


class Swap(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(0, 1).reshape(2, 5)


program = torch.onnx.export(Swap(), (torch.randn(2, 5).bfloat16(),), dynamo=True, verbose=False)
(result,) = program(torch.linspace(-2, 2, 10).reshape(2, 5).bfloat16())
print(result.dtype, result.double().numpy())
