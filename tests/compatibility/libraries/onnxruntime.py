# /// script
# dependencies = ["onnxruntime==1.32.0", "onnx==1.23.2"]
# ///
# Makes a small model and runs it, on two threads, several calls at a time.
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
from onnx import TensorProto, helper


def model() -> bytes:
    product = helper.make_node("MatMul", ["x", "w"], ["p"])
    positive = helper.make_node("Relu", ["p"], ["y"])
    weights = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) - 2000
    graph = helper.make_graph(
        [product, positive],
        "farm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 64])],
        [helper.make_tensor("w", TensorProto.FLOAT, [64, 64], weights.flatten())],
    )
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, ir_version=9, opset_imports=[opset]).SerializeToString()


def work() -> None:
    assert "CPUExecutionProvider" in onnxruntime.get_available_providers()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(model(), options, providers=["CPUExecutionProvider"])
    x = np.eye(64, dtype=np.float32)[:8]
    weights = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) - 2000
    wanted = np.maximum(x @ weights, 0)
    with ThreadPoolExecutor(3) as pool:
        for (y,) in pool.map(lambda _: session.run(None, {"x": x}), range(6)):
            assert np.array_equal(y, wanted)
    usual = onnxruntime.InferenceSession(model(), providers=["CPUExecutionProvider"])
    assert usual.run(["y"], {"x": x})[0].shape == (8, 64)
