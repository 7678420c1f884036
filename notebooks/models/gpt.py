"""Writes notebooks/models/gpt.onnx: a small GPT in PyTorch, trained to sort six digits as minGPT's demonstration does.

Run `python notebooks/models/gpt.py` with torch and onnxscript installed; it takes a minute.
"""

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, DIGITS, WIDTH, HEADS, LAYERS = 10, 6, 48, 4, 3
LENGTH = 2 * DIGITS - 1  # the digits, then the sorted digits except the last


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            self.qkv(self.norm1(x))
            .reshape(batch, length, 3, HEADS, WIDTH // HEADS)
            .permute(2, 0, 3, 1, 4)
        )
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = (
            nn.Embedding(VOCABULARY, WIDTH),
            nn.Embedding(LENGTH, WIDTH),
        )
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, VOCABULARY, bias=False),
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main(path: Path) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # these matrices are too small for more
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1000):
        digits = torch.randint(VOCABULARY, (128, DIGITS))
        answer = digits.sort(dim=1).values
        logits = model(torch.cat([digits, answer[:, :-1]], dim=1))[:, DIGITS - 1 :]
        loss = functional.cross_entropy(logits.flatten(0, 1), answer.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 250 == 0:
            print(step, f"{loss.item():.4f}")
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=LENGTH)
    program = torch.onnx.export(
        model.eval(),
        (torch.zeros(2, LENGTH, dtype=torch.int64),),
        input_names=["tokens"],
        output_names=["logits"],
        dynamic_shapes=({0: batch, 1: length},),
        dynamo=True,
        optimize=False,  # which would give weights new names where it transposes them
    )
    for node in program.model.graph:
        node.metadata_props.clear()  # PyTorch's stack traces, as long as the weights
    program.save(path)


if __name__ == "__main__":
    main(Path(__file__).with_name("gpt.onnx"))
