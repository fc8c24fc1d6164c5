// Kernel learners that keep one list of support vectors and go from mistake to mistake: NORMA, the randomized budget
// perceptron, the Forgetron and the Projectron. They share the list; each is one rule of what to do with a sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/rows.hpp"
#include "kernels/kernels.hpp"

namespace steelyard {

// Stochastic gradient steps on the soft margin loss with an adaptive margin, in its nu form.
struct NormaRule {
    double learning_rate;   // eta
    double regularization;  // lambda; eta * lambda < 1
    double nu;
    std::uint64_t memory;  // samples after which a support vector is dropped; 0: never
};

// A support vector drawn at random leaves a full budget.
struct RandomBudgetRule {
    std::size_t budget;
    std::uint64_t seed;
};

// The oldest support vector leaves a full budget, after all weights have shrunk as little as a bound allows.
struct ForgetronRule {
    std::size_t budget;
};

// A sample close to the span of the support vectors is projected onto it instead of being stored.
struct ProjectronRule {
    double threshold;  // largest distance to the span
    bool margin;       // also act on correct samples with a margin below 1 (Projectron++)
};

template <class T>
class KernelExpansion {
  public:
    // What was learned besides the support vectors; each rule uses its own part.
    struct Numbers {
        double bias = 0.0;
        double margin = 0.0;     // rho of NORMA
        double deviation = 0.0;  // Q of the Forgetron
        std::uint64_t mistakes = 0;
        std::uint64_t seen = 0;
    };

    KernelExpansion(const KernelSpec& kernel, std::size_t n_features) : kernel_(kernel), rows_(n_features) {}
    // Rebuilds a list; `times` are the numbers of the samples that the vectors were.
    KernelExpansion(const KernelSpec& kernel, Rows<T> vectors, std::vector<double> coef,
                    std::vector<std::uint64_t> times, const Numbers& numbers);

    const PackedRows<T, double>& rows() const { return rows_; }
    const std::vector<double>& coef() const { return coef_; }
    const std::vector<std::uint64_t>& times() const { return times_; }
    const Numbers& numbers() const { return numbers_; }
    const KernelSpec& kernel() const { return kernel_; }

    // Learns rows in their order by one of the rules above; y[i] is +1 or -1.
    template <class Rule>
    void learn(Rows<T> X, const std::int8_t* y, const Rule& rule);
    void scores(Rows<T> X, double* out, unsigned n_threads) const;

  private:
    void step(const NormaRule& rule, const T* x, int y);
    void step(const RandomBudgetRule& rule, const T* x, int y);
    void step(const ForgetronRule& rule, const T* x, int y);
    void step(const ProjectronRule& rule, const T* x, int y);

    double weigh(const T* x);  // f(x) without the bias; leaves the kernel values in similarities_
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
    // The lower Cholesky factor of the vectors' kernel matrix, row after row; only the Projectron builds it.
    std::vector<double> factor_;
    // Room for one sample's work.
    std::vector<double> similarities_, solution_, projection_;
};

}  // namespace steelyard
