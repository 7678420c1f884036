"""The names of ONNX Runtime's modules that dmljax refuses, with the reasons, and what to write instead."""

from collections.abc import Mapping

from dmljax.run.onnxruntime.values import NO_SPARSE_VALUES

_COMPILER = "XLA compiles a model when it first runs, and dmljax.run keeps what it compiles"
_PACKAGES = "dmljax reads no packages of models; load the model's own file"
_BENEATH = "it is beneath ONNX Runtime's Python classes"
_BITS = "it is ONNX Runtime's compiled code; quantize without dmljax.run, and run the file with it"
_KERNELS = "dmljax has no list of ONNX Runtime's kernels; dmljax check model.onnx lists what it does not support"
_SPARSE = (
    "OrtSparseFormat",
    "SparseBlockSparseView",
    "SparseCooView",
    "SparseCsrView",
    "SparseTensor",
)

REFUSED: Mapping[str, str] = {
    **dict.fromkeys(_SPARSE, NO_SPARSE_VALUES),
    **dict.fromkeys(
        (
            "ModelCompiler",
            "OrtCompileApiFlags",
            "OrtCompiledModelCompatibility",
            "OrtDeviceEpIncompatibilityReason",
            "OrtEpContextData",
            "OrtEpContextDataBuffer",
            "OrtExternalInitializerInfo",
            "get_compatibility_info_from_model",
            "get_compatibility_info_from_model_bytes",
            "get_hardware_device_ep_incompatibility_details",
            "get_model_compatibility_for_ep_devices",
            "make_get_initializer_location_func_wrapper",
        ),
        _COMPILER,
    ),
    **dict.fromkeys(
        (
            "ModelPackage",
            "ModelPackageComponentContext",
            "ModelPackageContext",
            "ModelPackageOptions",
            "ModelPackageWriteMode",
        ),
        _PACKAGES,
    ),
    **dict.fromkeys(("OrtEpAssignedNode", "OrtEpAssignedSubgraph"), "XLA makes one program of all nodes"),
    "OrtSyncStream": "XLA orders its work itself",
    **dict.fromkeys(
        ("register_execution_provider_library", "unregister_execution_provider_library"),
        "JAX's plugins bring devices; JAX's extra cuda12 brings NVIDIA's GPUs",
    ),
    "AdapterFormat": f"{_BENEATH}; write onnxruntime.AdapterFormat",
    "SessionIOBinding": f"{_BENEATH}; write session.io_binding()",
    "InferenceSession": f"{_BENEATH}; write onnxruntime.InferenceSession",
    "OrtValueVector": f"{_BENEATH}; lists of OrtValues stand for it",
    **dict.fromkeys(("SessionObjectInitializer", "get_session_initializer"), f"{_BENEATH}; write InferenceSession"),
    "check_and_normalize_provider_args": "providers are only names here",
    **dict.fromkeys(
        (
            "quantize_matmul_bnb4",
            "quantize_qdq_matmul_2bits",
            "pack_fp4_weights_for_cuda_moe_gemm",
        ),
        _BITS,
    ),
    **dict.fromkeys(
        ("get_all_operator_schema", "get_all_opkernel_def", "get_registered_ep_kernel_defs", "opkernel", "schemadef"),
        _KERNELS,
    ),
    **dict.fromkeys(
        (
            "build_and_package_info",
            "import_capi_exception",
            "onnxruntime_collect_build_info",
            "onnxruntime_validation",
        ),
        "it is about ONNX Runtime's own build; get_build_info() tells dmljax's version",
    ),
}
