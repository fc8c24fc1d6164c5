"""Interfaces to other libraries, one module per library, which is imported only if it is installed.

``river`` adapts learners to river and river models to this library; ``capymoa`` adapts learners to CapyMOA;
``onnx`` and ``skl2onnx`` export ONNX graphs; ``c_header`` exports a linear model as a C header; ``skops`` and
``mlflow`` save models in the formats of these packages.
"""
