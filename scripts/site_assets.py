"""A MkDocs hook that adds mermaid, which `scripts/mermaid` downloads to build/, to the files of the site."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

MERMAID = Path(__file__).parents[1] / "build" / "mermaid" / "mermaid.min.js"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    files.append(File.generated(config, "assets/mermaid.min.js", abs_src_path=str(MERMAID)))
    return files
