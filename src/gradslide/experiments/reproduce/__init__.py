"""The paper's tables and figures, and experiments beyond them: each published figure beside ours."""
