"""A certificate authority for tests: openssl makes its keys and certificates in a directory."""

import subprocess

NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def openssl(directory, *words):
    subprocess.run(["openssl", *map(str, words)], cwd=directory, capture_output=True, text=True, check=True)


class Authority:
    """Signs certificates, in a directory."""

    def __init__(self, directory, name):
        self.directory, self.name = directory, name
        files = ("-keyout", f"{name}.key", "-out", f"{name}.pem")
        openssl(directory, "req", "-x509", *NEW_KEY, "-days", 90, "-subj", f"/CN={name}", *files)

    def pem(self):
        return (self.directory / f"{self.name}.pem").read_text()

    def sign(self, days, names="IP:127.0.0.1"):
        """A certificate for the loopback, or for whom `names` says, and its key, as texts."""
        part = self.directory / "signed"
        part.mkdir(exist_ok=True)
        openssl(part, "req", *NEW_KEY, "-subj", "/CN=server", "-keyout", "key", "-out", "csr")
        (part / "ext").write_text(f"subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n")
        openssl(
            part, "x509", "-req", "-days", days, "-in", "csr", "-CA", f"../{self.name}.pem", "-CAkey", f"../{self.name}.key",
            "-CAcreateserial", "-extfile", "ext", "-out", "cert",
        )  # fmt: skip
        return (part / "cert").read_text(), (part / "key").read_text()
