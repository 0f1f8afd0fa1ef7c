"""The distribution: what it needs, what it contains, which command it installs. Everything else is in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
README = HERE / "README.md"

# Read, not imported: importing would need the dependencies that are being declared here.
VERSION = re.search(r'^__version__ = "(.+)"$', (HERE / "attlm_fairseq" / "__init__.py").read_text("utf-8"), re.MULTILINE)[1]

DECODING = ["flashlight-text", "pyctcdecode", "transformers"]
SUBWORD = ["sentencepiece", "subword-nmt"]

setup(
    name="attlm-fairseq",
    version=VERSION,
    description="Memory-augmented recurrent language models for fairseq, and the rescoring of n-best lists with them",
    long_description=README.read_text("utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
    license="MIT",
    author="attlm contributors",
    python_requires=">=3.10,<3.13",
    packages=[*find_packages(include=["attlm_fairseq", "attlm_fairseq.*"]), "attlm_cli"],
    package_dir={"attlm_cli": "cli/attlm_cli"},
    package_data={"attlm_fairseq.nbest.report": ["templates/*.html"]},
    entry_points={"console_scripts": ["attlm = attlm_cli.main:main"]},
    install_requires=[
        "torch>=2.6",  # before it, fairseq runs code hidden in the checkpoints that it loads
        # fairseq itself cannot be imported from Python 3.11 on; fairseq-fixed is its main branch with 53 added lines.
        'fairseq==0.12.2; python_version < "3.11"',
        'fairseq-fixed==0.12.3.1; python_version >= "3.11"',
        # fairseq uses np.compat, which numpy 2 no longer has.
        "numpy>=1.26.4,<2",
        "kenlm",
        "sacremoses",
        "click",
        "sacrebleu",
        "rapidfuzz",
        "tqdm",
        "tomlkit",
        "matplotlib",
        "jinja2",
        "scipy",
        "safetensors",
    ],
    extras_require={
        "test": ["pytest", "pytest-xdist", "hypothesis", "ruff", "setuptools", "wheel", *DECODING, *SUBWORD],
        "decoding": DECODING,
        "subword": SUBWORD,
        "ray": ["ray[data]", "pyarrow<22"],  # later versions of pyarrow need numpy 2
    },
)
