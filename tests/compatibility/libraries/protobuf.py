# /// script
# dependencies = ["protobuf==7.36.2"]
# ///
# Describes a message at run time, writes and reads it, as bytes and as JSON.
import datetime

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    json_format,
    message_factory,
    struct_pb2,
    timestamp_pb2,
)
from google.protobuf.internal import api_implementation


def work() -> None:
    assert api_implementation.Type() == "upb"
    file = descriptor_pb2.FileDescriptorProto(name="farm.proto", package="farm", syntax="proto3")
    message = file.message_type.add(name="Sheep")
    field = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="name", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    message.field.add(name="ages", number=2, type=field.TYPE_INT32, label=field.LABEL_REPEATED)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    sheep = message_factory.GetMessageClass(pool.FindMessageTypeByName("farm.Sheep"))
    dolly = sheep(name="Dölly", ages=[1, 2, 300])
    assert dolly.SerializeToString().hex() == "0a0644c3b66c6c79120401" + "02ac02"
    again = sheep.FromString(dolly.SerializeToString())
    assert again == dolly and json_format.MessageToDict(again)["ages"] == [1, 2, 300]
    time = timestamp_pb2.Timestamp()
    time.FromJsonString("1996-07-05T12:00:00.5Z")
    assert time.ToDatetime() == datetime.datetime(1996, 7, 5, 12, 0, 0, 500_000)
    table = json_format.Parse('{"a": [1, null, "ö"]}', struct_pb2.Struct())
    assert json_format.MessageToDict(table) == {"a": [1.0, None, "ö"]}
