"""Talks to a fusiond with nothing but grpcio and the daemon's own reflection."""

import sys

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

# The authority must be named: grpcio would send the escaped path of the socket, which HTTP/2 peers refuse.
channel = grpc.insecure_channel(f"unix://{sys.argv[1]}", options=[("grpc.default_authority", "localhost")])

database = ProtoReflectionDescriptorDatabase(channel)
services = set(database.get_services())
expected = {
    "fusion.v1.Calibration",
    "fusion.v1.Control",
    "fusion.v1.Ratios",
    "fusion.v1.Store",
    "grpc.health.v1.Health",
}
assert expected <= services, services
pool = descriptor_pool.DescriptorPool(database)


def message(name, **fields):
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))(**fields)


def method(service, name):
    descriptor = pool.FindServiceByName(service).FindMethodByName(name)
    reply = message_factory.GetMessageClass(descriptor.output_type)
    call = channel.unary_stream if descriptor.server_streaming else channel.unary_unary
    return call(
        f"/{service}/{name}",
        request_serializer=lambda request: request.SerializeToString(),
        response_deserializer=reply.FromString,
    )


health = method("grpc.health.v1.Health", "Check")(message("grpc.health.v1.HealthCheckRequest"), timeout=5)
assert health.status == 1, health

layer = message("fusion.v1.Layer", inputs=896, outputs=4864, format="f32")
shape = message("fusion.v1.Shape", rows=512, layer=layer)
request = message("fusion.v1.CalibrateRequest", shapes=[shape], title="Python")
events = [event.WhichOneof("event") for event in method("fusion.v1.Calibration", "Calibrate")(request, timeout=60)]
assert events[0] in ("started", "queued") and events[-1] == "finished" and "shape_finished" in events, events

answer = method("fusion.v1.Ratios", "GetRatio")(message("fusion.v1.GetRatioRequest", shape=shape), timeout=5)
assert abs(answer.ratio - 1 / 3) < 0.01 and answer.secondary_rows in range(170, 173), answer
assert answer.lines.secondary_ms_per_row > answer.lines.primary_ms_per_row > 0, answer

try:
    bad = message("fusion.v1.Shape", rows=0, layer=layer)
    method("fusion.v1.Ratios", "GetRatio")(message("fusion.v1.GetRatioRequest", shape=bad), timeout=5)
    raise AssertionError("a shape of no rows was accepted")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT and "rows is 0" in error.details(), error
