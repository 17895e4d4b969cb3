# /// script
# dependencies = ["opentelemetry-sdk==1.45.2", "psutil==7.2.2"]
# ///
# Spans and measurements, which threads of the library export.
import asyncio

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import (
    OsResourceDetector,
    ProcessResourceDetector,
    get_aggregated_resources,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


def work() -> None:
    kept = InMemorySpanExporter()
    resource = get_aggregated_resources([ProcessResourceDetector(), OsResourceDetector()])
    assert resource.attributes["process.pid"] > 0 and resource.attributes["os.type"] == "linux"
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(kept, schedule_delay_millis=20))
    tracer = provider.get_tracer("farm")

    async def shear(number):
        with tracer.start_as_current_span(f"shear {number}") as span:
            await asyncio.sleep(0.001)
            span.set_attribute("n", number)

    async def all_of_them():
        await asyncio.gather(*(shear(n) for n in range(5)))

    with tracer.start_as_current_span("day") as day:
        asyncio.run(all_of_them())
    provider.force_flush()
    spans = {span.name: span for span in kept.get_finished_spans()}
    assert len(spans) == 6
    assert spans["shear 3"].parent.span_id == day.get_span_context().span_id
    provider.shutdown()
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    meters.get_meter("farm").create_counter("sheep").add(41)
    (told,) = reader.get_metrics_data().resource_metrics
    assert told.scope_metrics[0].metrics[0].data.data_points[0].value == 41
    meters.shutdown()
