"""Class-incremental learning of Reuters-21578 topics: wheat and corn, then coffee, soybean and cocoa.

Run ``python benchmarks/accuracy/enclosing_reuters.py --data-dir FOLDER``, where FOLDER holds
``reuters5.jsonl.gz``: one JSON object a line with ``topics``, ``title`` and ``body``. The texts are for
research only and do not come with this package.

Terms are chosen by information gain and weighted by TF-IDF, both on the training texts. The folder's 736
documents carry 900 of the five topics; ``--instances topics`` takes each as an instance of its own, which
comes nearest to the 896 texts of the paper, ``--instances single`` takes the documents with one topic only.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import defaultdict
from pathlib import Path
from time import perf_counter

import numpy as np
from enclosing_ridge import ledoit_wolf_answers
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.metrics import precision_recall_fscore_support
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC

from steelyard import EnclosingClassifier

TOPICS = ["wheat", "corn", "coffee", "soybean", "cocoa"]
INCREMENTS = {"original": 2, "1st": 3, "2nd": 4, "3rd": 5}
PAPER = {  # MAAP, MAAR, MAAF in per cent, training and testing in milliseconds
    ("original", "HS"): (72.76, 72.84, 72.79, 110, 94),
    ("original", "HE"): (76.92, 74.52, 75.18, 126, 83),
    ("original", "MHE"): (78.76, 76.64, 77.82, 112, 88),
    ("1st", "HS"): (79.75, 78.09, 78.85, 15, 140),
    ("1st", "HE"): (80.00, 78.53, 79.26, 33, 132),
    ("1st", "MHE"): (81.75, 79.73, 80.39, 16, 135),
    ("2nd", "HS"): (74.97, 71.53, 73.21, 32, 157),
    ("2nd", "HE"): (82.56, 78.72, 80.11, 36, 161),
    ("2nd", "MHE"): (83.72, 79.63, 81.66, 33, 158),
    ("3rd", "HS"): (76.64, 73.47, 75.02, 31, 204),
    ("3rd", "HE"): (81.41, 76.61, 78.40, 48, 185),
    ("3rd", "MHE"): (83.56, 78.31, 81.84, 32, 187),
}
SYSTEMS = {
    "HS": {"shape": "sphere"},
    "HE": {"shape": "ellipsoid"},
    "MHE": {"shape": "ellipsoid", "outliers": 0.3},
    "HS, outliers 0.3": {"shape": "sphere", "outliers": 0.3},
    "HE, ridge 1e-9": {"ridge": 1e-9},
    "HE, ridge 1e-4": {"ridge": 1e-4},
    "HE, ridge 0.1": {"ridge": 0.1},
    "HE, auto": {"ridge": "auto"},
    "MHE, auto": {"ridge": "auto", "outliers": 0.3},
    "HS, quadratic, outliers 0.3": {
        "shape": "sphere",
        "kernel": "polynomial",
        "degree": 2,
        "gamma": 1.0,
        "coef0": 1.0,
        "outliers": 0.3,
    },
}


def read_instances(path, instances):
    texts, labels = [], []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for document in map(json.loads, lines):
            topics = [topic for topic in TOPICS if topic in document["topics"]]
            if instances == "single" and len(topics) > 1:
                continue
            text = f"{document.get('title') or ''} {document.get('body') or ''}"
            texts += [text] * len(topics)
            labels += topics
    return np.array(texts, dtype=object), np.array(labels)


def entropy_terms(counts, total):
    share = counts / np.maximum(total, 1)
    return -share * np.log2(np.where(share > 0, share, 1.0))


def information_gain(present, labels):
    """How much knowing whether a term is present tells of the label, in bits."""
    n, with_term = len(labels), np.asarray(present.sum(axis=0)).ravel()
    whole, given_present, given_absent = 0.0, 0.0, 0.0
    for label in np.unique(labels):
        mine = labels == label
        counts = np.asarray(present[mine].sum(axis=0)).ravel()
        whole += entropy_terms(mine.sum(), n)
        given_present = given_present + entropy_terms(counts, with_term)
        given_absent = given_absent + entropy_terms(mine.sum() - counts, n - with_term)
    return whole - (with_term * given_present + (n - with_term) * given_absent) / n


def weigh_terms(train, test, labels, n_terms, *, sublinear):
    counter = CountVectorizer(token_pattern=r"[a-z]{2,}")
    counts, unseen = counter.fit_transform(train), counter.transform(test)
    gain = information_gain((counts > 0).astype(float), labels)
    chosen = np.argsort(-gain, kind="stable")[:n_terms]
    tfidf = TfidfTransformer(sublinear_tf=sublinear).fit(counts[:, chosen])
    return tfidf.transform(counts[:, chosen]).toarray(), tfidf.transform(unseen[:, chosen]).toarray()


def macro_scores(labels, answers):
    scores = precision_recall_fscore_support(labels, answers, average="macro", zero_division=0)
    return [100 * score for score in scores[:3]]


def learn_topic_by_topic(system, train, test, results):
    (X, y), (X_test, y_test) = train, test
    model, known = EnclosingClassifier(**SYSTEMS[system]), 0
    for increment, n_topics in INCREMENTS.items():
        new = np.isin(y, TOPICS[known:n_topics])
        begin = perf_counter()
        model.partial_fit(X[new], y[new])
        model.radius_  # noqa: B018 - bodies are trained when they are first asked for
        trained = perf_counter()
        asked = np.isin(y_test, TOPICS[:n_topics])
        answers = model.predict(X_test[asked])
        tested = perf_counter()
        times = [1e3 * (trained - begin), 1e3 * (tested - trained)]
        results[increment, system].append([*macro_scores(y_test[asked], answers), *times])
        known = n_topics


def run(options):
    texts, labels = read_instances(options.data_dir / "reuters5.jsonl.gz", options.instances)
    results, at_once = defaultdict(list), defaultdict(list)
    for seed in range(options.repeats):
        parts = train_test_split(texts, labels, test_size=1 / 3, random_state=seed, stratify=labels)
        train_texts, test_texts, y, y_test = parts
        X, X_test = weigh_terms(train_texts, test_texts, y, options.terms, sublinear=options.sublinear)
        for system in SYSTEMS:
            learn_topic_by_topic(system, (X, y), (X_test, y_test), results)
        answers = {
            "LinearSVC": LinearSVC().fit(X, y).predict(X_test),
            "HE with Ledoit and Wolf's shrinkage": ledoit_wolf_answers(X, y, X_test),
        }
        for name, answer in answers.items():
            at_once[name].append(macro_scores(y_test, answer)[2])
    return len(labels), results, at_once


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True, help="folder with reuters5.jsonl.gz")
    parser.add_argument("--instances", choices=["topics", "single"], default="topics")
    parser.add_argument("--terms", type=int, default=100)
    parser.add_argument("--sublinear", action="store_true", help="1 + log of the term counts")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    n_instances, results, at_once = run(options)
    print(f"{n_instances} instances, {options.terms} terms, means over {options.repeats} splits 2:1\n")
    print(
        "| increment | system | precision | recall | F1 | spread | train ms | test ms | paper F1 | paper ms |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for (increment, system), runs in sorted(
        results.items(), key=lambda item: list(INCREMENTS).index(item[0][0])
    ):
        precision, recall, f1, train_ms, test_ms = np.mean(runs, axis=0)
        spread = np.std(runs, axis=0)[2]
        paper = PAPER.get((increment, system))
        theirs = f"{paper[2]:.2f} | {paper[3]}, {paper[4]}" if paper else " | "
        print(
            f"| {increment} | {system} | {precision:.1f} | {recall:.1f} | {f1:.1f} | {spread:.1f} "
            f"| {train_ms:.1f} | {test_ms:.2f} | {theirs} |"
        )
    for name, scores in at_once.items():
        print(f"\n{name}, all five classes at once: F1 {np.mean(scores):.1f}")


if __name__ == "__main__":
    main()
