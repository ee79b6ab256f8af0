"""Compiles the Java programs of java/ into a folder of the suite's own; nothing compiled is kept."""

import subprocess
from pathlib import Path

from support import packages

JAVA = Path(__file__).resolve().parent / "java"
COMPILE_LIMIT_S = 120


def compiled(directory, class_path, program):
    """Compiles a program and the runner; returns the command that runs it. Skips the test if there is no compiler."""
    packages.need_command("java", "a Java runtime (Debian: default-jre-headless)")
    packages.need_command("javac", "a Java compiler (Debian: default-jdk-headless)")
    classes = Path(directory) / f"classes-{len(list(Path(directory).iterdir()))}"
    sources = [str(JAVA / f"{name}.java") for name in (program, "Suite")]
    command = ["javac", "-nowarn", "-d", str(classes), "-cp", class_path, *sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_LIMIT_S, check=False)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stderr}"
    return ["java", "-Xmx256m", "-cp", f"{classes}:{class_path}", program]
