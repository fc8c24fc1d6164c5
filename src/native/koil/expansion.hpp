// Online kernel learners with one list of support vectors. Each learner is an update rule on a shared data structure.
// The update rules are NORMA, the randomized budget perceptron, the Forgetron and the Projectron.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/rows.hpp"
#include "kernels/kernels.hpp"

namespace steelyard {

// NORMA: stochastic gradient descent on the soft margin loss with an adaptive margin, in the nu parametrization.
struct NormaRule {
    double learning_rate;   // eta in the paper
    double regularization;  // lambda in the paper, with eta * lambda < 1
    double nu;
    std::uint64_t memory;  // number of samples after which a support vector is dropped; 0 means never
};

// Randomized budget perceptron: if the budget is exceeded, it removes a random support vector.
struct RandomBudgetRule {
    std::size_t budget;
    std::uint64_t seed;
};

// Forgetron: if the budget is full, it shrinks all weights and removes the oldest support vector.
// The Forgetron shrinks weights as little as its mistake bound allows.
struct ForgetronRule {
    std::size_t budget;
};

// Projectron: samples close to the span of the support vectors are projected onto the span instead of being stored.
struct ProjectronRule {
    double threshold;  // samples at most this far from the span of the support vectors are projected
    bool margin;       // whether to update also on correctly classified samples with a margin below 1 (Projectron++)
};

template <class T>
class KernelExpansion {
  public:
    // Learned numbers that are not part of the support vectors. Each update rule uses some of them.
    struct Numbers {
        double bias = 0.0;
        double margin = 0.0;     // rho in the NORMA paper
        double deviation = 0.0;  // Q in the Forgetron paper
        std::uint64_t mistakes = 0;
        std::uint64_t seen = 0;
    };

    KernelExpansion(const KernelSpec& kernel, std::size_t n_features) : kernel_(kernel), rows_(n_features) {}
    // Restores a list of support vectors. `times` contains the sample number of each stored vector.
    KernelExpansion(const KernelSpec& kernel, Rows<T> vectors, std::vector<double> coef,
                    std::vector<std::uint64_t> times, const Numbers& numbers);

    const PackedRows<T, double>& rows() const { return rows_; }
    const std::vector<double>& coef() const { return coef_; }
    const std::vector<std::uint64_t>& times() const { return times_; }
    const Numbers& numbers() const { return numbers_; }
    const KernelSpec& kernel() const { return kernel_; }

    // Learns rows in order by one of the update rules, where y[i] is +1 or -1.
    template <class Rule>
    void learn(Rows<T> X, const std::int8_t* y, const Rule& rule);
    void scores(Rows<T> X, double* out, unsigned n_threads) const;

  private:
    void step(const NormaRule& rule, const T* x, int y);
    void step(const RandomBudgetRule& rule, const T* x, int y);
    void step(const ForgetronRule& rule, const T* x, int y);
    void step(const ProjectronRule& rule, const T* x, int y);

    double score(const T* x);  // returns f(x) without the bias and leaves the kernel values in similarities_
    double self_similarity(const T* x) const;
    void add(const T* x, double weight);
    void remove(std::size_t i);
    std::size_t oldest() const;
    void extend_factor(double residual);
    double project(const T* x);

    KernelSpec kernel_;
    PackedRows<T, double> rows_;
    std::vector<double> coef_;
    std::vector<std::uint64_t> times_;
    Numbers numbers_;
    // Lower Cholesky factor of the kernel matrix of the support vectors, packed by rows. Used only by the Projectron.
    std::vector<double> factor_;
    // Scratch memory for one sample.
    std::vector<double> similarities_, solution_, projection_;
};

}  // namespace steelyard
