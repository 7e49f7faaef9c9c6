"""The few fields of an ONNX file that must be known before it is loaded, from its protocol buffers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from a2lp.errors import InputError

# ModelProto.graph, GraphProto.initializer and .node, NodeProto.attribute, AttributeProto.t and .g; see onnx.proto
_GRAPH, _INITIALIZER, _NODE, _ATTRIBUTE, _TENSOR, _SUBGRAPH = 7, 5, 1, 5, 5, 6
_EXTERNAL, _LOCATION = 13, 14  # TensorProto.external_data and .data_location
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Field = tuple[int, Any]  # a whole number or a memoryview


def external_weights(content: bytes) -> list[str]:
    """The other files that hold weights of the network; InputError if the content is no protocol buffer."""
    found: list[str] = []
    graphs = list(_messages(memoryview(content), _GRAPH))
    while graphs:
        graph = graphs.pop()
        tensors = list(_messages(graph, _INITIALIZER))
        for node in _messages(graph, _NODE):
            for attribute in _messages(node, _ATTRIBUTE):
                tensors += _messages(attribute, _TENSOR)
                graphs += _messages(attribute, _SUBGRAPH)
        for tensor in tensors:
            if any(number == _LOCATION and value == 1 for number, value in _fields(tensor)):
                pairs = (dict(_fields(pair)) for pair in _messages(tensor, _EXTERNAL))
                found += [str(pair.get(2, b""), "utf-8", "replace") for pair in pairs if pair.get(1) == b"location"]
                found += ["another file"] if not found else []
    return sorted(set(found))


def _messages(message: memoryview, wanted: int) -> Iterator[memoryview]:
    return (value for number, value in _fields(message) if number == wanted and isinstance(value, memoryview))


def _fields(message: memoryview) -> Iterator[Field]:
    """The numbers and values of the fields of a message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        value: Any
        if kind == _VARINT:
            value, at = _varint(message, at)
        elif kind in (_BYTES, _FIXED64, _FIXED32):
            length = {_FIXED64: 8, _FIXED32: 4}.get(kind)
            if length is None:
                length, at = _varint(message, at)
            value, at = message[at : at + length], at + length
        else:
            raise InputError("it is no ONNX file.")
        if at > len(message):
            raise InputError("it ends too early: it is damaged, or no ONNX file.")
        yield key >> 3, value


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte, at = message[at], at + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise InputError("it ends too early: it is damaged, or no ONNX file.")
