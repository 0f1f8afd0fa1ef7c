"""The distribution: what it needs, what it contains, which command it installs. Everything else is in pyproject.toml."""

import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
README = HERE / "README.md"

# Read, not imported: importing would need the dependencies that are being declared here.
VERSION = re.search(r'^__version__ = "(.+)"$', (HERE / "attlm_fairseq" / "version.py").read_text("utf-8"), re.MULTILINE)[1]

TRANSFORMERS = "transformers>=5.5"  # before it, config.json can have code downloaded and run (CVE-2026-4372, CVE-2026-5241)
DECODING = ['flashlight-text; python_version < "3.14"', 'pyctcdecode; python_version < "3.13"', TRANSFORMERS]  # numpy 1 for pyctcdecode
SUBWORD = ["sentencepiece>=0.2.3", "subword-nmt"]  # a model file can corrupt memory before 0.2.1, 0.2.1 itself crashes on long pieces
RAY = ["ray[data]", "pyarrow<22"]  # later versions of pyarrow need numpy 2, which fairseq cannot use
# fairseq 0.12.2 cannot be imported from Python 3.11 on; fairseq-fixed is its main branch with 53 added lines. Both need numpy 1
# (np.compat), which has no wheels for Python 3.13.
TRAIN = [
    'fairseq==0.12.2; python_version < "3.11"',
    'fairseq-fixed==0.12.3.1; python_version >= "3.11" and python_version < "3.13"',
    'numpy>=1.26.4,<2; python_version < "3.13"',
]

REPOSITORY = ""  # the public address, once there is one: links of the package index and of the README there are made of it


def long_description() -> str:
    """Return the README with absolute links: a package index shows it without the files that it links to."""
    if not README.exists() or not REPOSITORY:
        return README.read_text("utf-8") if README.exists() else ""
    text = re.sub(r"(!\[[^]]*\]\()(?!https?:)", rf"\1{REPOSITORY}/raw/main/", README.read_text("utf-8"))
    return re.sub(r"((?<!!)\[[^]]*\]\()(?!https?:|#)", rf"\1{REPOSITORY}/blob/main/", text)


class FreshBuild(build_py):
    """Builds of the sources alone: setuptools would add what an earlier build left in ``build/lib``, deleted modules included."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


setup(
    name="attlm-fairseq",
    version=VERSION,
    description="Memory-augmented recurrent language models for fairseq, and the rescoring of n-best lists with them",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    license="MIT",
    license_files=["LICENSE"],
    author="attlm contributors",
    project_urls={}
    if not REPOSITORY
    else {
        "Documentation": f"{REPOSITORY}/tree/main/docs",
        "Source": REPOSITORY,
        "Issues": f"{REPOSITORY}/issues",
        "Changelog": f"{REPOSITORY}/blob/main/CHANGELOG.md",
    },
    keywords="language model, n-best rescoring, speech recognition, machine translation, fairseq, KenLM, attention, LSTM",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        *[f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 15)],
        "Topic :: Multimedia :: Sound/Audio :: Speech",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
    python_requires=">=3.10",
    packages=[*find_packages(include=["attlm_fairseq", "attlm_fairseq.*"]), "attlm_cli"],
    package_dir={"attlm_cli": "cli/attlm_cli"},
    package_data={"attlm_fairseq": ["py.typed", "*/templates/*", "*/*/templates/*"]},
    cmdclass={"build_py": FreshBuild},
    entry_points={"console_scripts": ["attlm = attlm_cli.main:main"]},
    install_requires=[
        "torch>=2.10",  # checkpoints/reading.py says why
        "numpy>=1.26.4",
        'kenlm; python_version < "3.13"',
        # The kenlm 0.3.0 of PyPI does not compile on Python 3.13; these are wheels of the same module.
        'ufal-kenlm>=26.4.1; python_version >= "3.13"',
        "sacremoses",
        "click",
        "cloup",  # options in groups
        "sacrebleu>=2,<3",
        "rapidfuzz",
        "num2words!=0.5.15,!=0.5.16",  # the ways to say a number, for corrections; these two held malware
        "tabulate>=0.9",
        "tqdm",
        "tomlkit>=0.11.1",
        "matplotlib",
        "jinja2",
        "scipy>=1.15",
        "safetensors",
    ],
    extras_require={
        "train": TRAIN,
        "test": ["pytest", "pytest-xdist", "hypothesis", "ruff", "mypy", "setuptools", "wheel", *DECODING, *SUBWORD, *RAY],
        "decoding": DECODING,
        "hf": [TRANSFORMERS, SUBWORD[0]],  # Marian and M2M100 have sentencepiece models
        "subword": SUBWORD,
        "docs": ["mkdocs", "mkdocstrings[python]"],
        "ray": RAY,
    },
)
