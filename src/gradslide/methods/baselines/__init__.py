"""Published methods to compare with: one file each, which reads like its paper.

Code that several of them share is in modules of its own. Methods of this library are one level up.
"""
