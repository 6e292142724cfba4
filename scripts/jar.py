"""What tidegate has in Java, compiled into a jar: `make jar`.

Janino compiles it, which Spark has with it: no JDK is needed, and the same source gives the same bytes.
"""

import sys
import zipfile
from io import BytesIO
from pathlib import Path

from py4j.java_gateway import JavaGateway
from pyspark.java_gateway import launch_gateway

SOURCES = Path(__file__).parents[1] / "src" / "tidegate" / "spark" / "jvm"
#: The first instant that a zip file can name: jars of one source are equal.
NO_TIME = (1980, 1, 1, 0, 0, 0)


def jar(gateway: JavaGateway) -> bytes:
    """A jar of all the sources, compiled by the JVM behind the gateway."""
    classes: dict[str, bytes] = {}
    for source in sorted(SOURCES.glob("*.java")):
        compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(source.read_text("utf-8"))
        classes |= {name.replace(".", "/"): code for name, code in compiler.getBytecodes().items()}
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(classes):
            archive.writestr(zipfile.ZipInfo(f"{name}.class", NO_TIME), classes[name])
    return packed.getvalue()


if __name__ == "__main__":
    sys.stdout.buffer.write(jar(launch_gateway()))
