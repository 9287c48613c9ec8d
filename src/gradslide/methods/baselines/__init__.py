"""Published methods to compare with: one file each, that reads like its paper.

What several of them share is in modules of its own. Methods of this library are one level up.
"""
