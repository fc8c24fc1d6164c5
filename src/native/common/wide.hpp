// Integers wider than 64 bits: 128 bits, or arbitrary precision.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "common/compiler.hpp"

namespace steelyard {

// Two's complement integer of up to kMaxLimbs limbs of 64 bits, stored with as few limbs as possible.
// Magnitudes of doubles are between 2^-1074 and 2^1024.
// Products of two doubles, as multiples of the smallest product, and sums of such products fit.
class Big {
  public:
    static constexpr std::size_t kMaxLimbs = 96;

    Big() { limbs_[0] = 0; }
    Big(std::int64_t x) { limbs_[0] = static_cast<std::uint64_t>(x); }  // NOLINT: implicit conversion from numbers
    Big(const Big& other) : n_(other.n_) { std::memcpy(limbs_, other.limbs_, n_ * sizeof *limbs_); }
    Big& operator=(const Big& other) {
        n_ = other.n_;
        std::memmove(limbs_, other.limbs_, n_ * sizeof *limbs_);
        return *this;
    }

    static Big of(int128 x) {
        const std::uint64_t limbs[2] = {static_cast<std::uint64_t>(x),
                                        static_cast<std::uint64_t>(static_cast<uint128>(x) >> 64)};
        return load(limbs, 2);
    }
    static Big load(const std::uint64_t* limbs, std::size_t n) {
        if (n > kMaxLimbs) throw std::overflow_error("a whole number is too large");
        Big x;
        x.n_ = n;
        std::memcpy(x.limbs_, limbs, n * sizeof *limbs);
        x.trim();
        return x;
    }
    // Converts a finite double without a fractional part.
    static Big of_whole(double x) {
        int exponent;
        const double fraction = std::frexp(x, &exponent);
        if (exponent <= 53) return Big(static_cast<std::int64_t>(x));
        return Big(static_cast<std::int64_t>(std::ldexp(fraction, 53))) << static_cast<unsigned>(exponent - 53);
    }

    void store(std::uint64_t* limbs, std::size_t n) const {  // n must be at least size()
        std::memcpy(limbs, limbs_, n_ * sizeof *limbs_);
        for (std::size_t i = n_; i < n; ++i) limbs[i] = fill();
    }

    std::size_t size() const { return n_; }
    bool is_zero() const { return n_ == 1 && limbs_[0] == 0; }
    bool is_negative() const { return n_ > 0 && limbs_[n_ - 1] >> 63; }
    int sign() const { return is_negative() ? -1 : !is_zero(); }

    Big operator-() const {
        Big x;
        x.n_ = grown(n_);
        std::uint64_t carry = 1;
        for (std::size_t i = 0; i < x.n_; ++i) {
            x.limbs_[i] = ~limb(i) + carry;
            carry = carry && x.limbs_[i] == 0;
        }
        x.trim();
        return x;
    }
    Big magnitude() const { return is_negative() ? -*this : *this; }

    friend Big operator+(const Big& a, const Big& b) {
        Big x;
        x.n_ = grown(a.n_ > b.n_ ? a.n_ : b.n_);
        uint128 carry = 0;
        for (std::size_t i = 0; i < x.n_; ++i) {
            carry += static_cast<uint128>(a.limb(i)) + b.limb(i);
            x.limbs_[i] = static_cast<std::uint64_t>(carry);
            carry >>= 64;
        }
        x.trim();
        return x;
    }
    friend Big operator-(const Big& a, const Big& b) { return a + -b; }
    friend Big operator*(const Big& a, const Big& b) {
        const Big p = a.magnitude(), q = b.magnitude();
        if (p.n_ + q.n_ > kMaxLimbs) throw std::overflow_error("a whole number is too large");
        Big x;
        x.n_ = p.n_ + q.n_;
        std::memset(x.limbs_, 0, x.n_ * sizeof *limbs_);
        for (std::size_t i = 0; i < p.n_; ++i) {
            std::uint64_t carry = 0;
            for (std::size_t j = 0; j < q.n_; ++j) {
                const uint128 sum = static_cast<uint128>(p.limbs_[i]) * q.limbs_[j] + x.limbs_[i + j] + carry;
                x.limbs_[i + j] = static_cast<std::uint64_t>(sum);
                carry = static_cast<std::uint64_t>(sum >> 64);
            }
            x.limbs_[i + q.n_] = carry;
        }
        x.trim();
        return a.is_negative() != b.is_negative() ? -x : x;
    }
    Big operator<<(unsigned bits) const {
        const std::size_t whole = bits / 64, part = bits % 64;
        Big x;
        x.n_ = grown(n_ + whole);
        for (std::size_t i = x.n_; i-- > 0;) {
            const std::uint64_t high = i >= whole ? limb(i - whole) : 0;
            const std::uint64_t low = i >= whole + 1 ? limb(i - whole - 1) : 0;
            x.limbs_[i] = part ? high << part | low >> (64 - part) : high;
        }
        x.trim();
        return x;
    }
    Big operator>>(unsigned bits) const {  // rounds towards minus infinity
        const std::size_t whole = bits / 64, part = bits % 64;
        Big x;
        x.n_ = n_;
        for (std::size_t i = 0; i < n_; ++i) {
            const std::uint64_t low = limb(i + whole), high = limb(i + whole + 1);
            x.limbs_[i] = part ? low >> part | high << (64 - part) : low;
        }
        x.trim();
        return x;
    }
    friend bool operator==(const Big& a, const Big& b) {
        return a.n_ == b.n_ && std::memcmp(a.limbs_, b.limbs_, a.n_ * sizeof *a.limbs_) == 0;
    }
    friend bool operator<(const Big& a, const Big& b) { return (a - b).is_negative(); }

    // Returns the number of bits of the magnitude, or 0 for the number 0.
    unsigned bit_length() const {
        const Big m = magnitude();
        for (std::size_t i = m.n_; i-- > 0;)
            if (m.limbs_[i]) return static_cast<unsigned>(64 * i + std::bit_width(m.limbs_[i]));
        return 0;
    }
    unsigned trailing_zeros() const {  // must not be called for the number 0
        std::size_t i = 0;
        while (!limbs_[i]) ++i;
        return static_cast<unsigned>(64 * i + std::countr_zero(limbs_[i]));
    }

    // Returns the fraction f of the nearest double f * 2^exponent. Ties are rounded to even.
    double nearest(int* exponent) const {
        const Big m = magnitude();
        const unsigned bits = m.bit_length();
        *exponent = 0;
        if (bits <= 53) return sign() * static_cast<double>(m.limbs_[0]);
        const unsigned drop = bits - 54;  // 54 bits remain, the last one only for rounding
        Big top = m >> drop;
        const bool below = drop > 0 && m.trailing_zeros() < drop;
        std::uint64_t mantissa = top.limbs_[0];
        const bool half = mantissa & 1;
        mantissa >>= 1;
        if (half && (below || (mantissa & 1))) ++mantissa;
        *exponent = static_cast<int>(drop) + 1;
        return sign() * static_cast<double>(mantissa);
    }
    double scaled(int by) const {
        int exponent;
        const double fraction = nearest(&exponent);
        return std::ldexp(fraction, exponent + by);
    }

    bool fits(std::size_t limbs) const { return n_ <= limbs; }
    int128 narrow() const {  // must be called only for numbers of at most two limbs
        return static_cast<int128>(static_cast<uint128>(limb(1)) << 64 | limb(0));
    }

    // Returns the quotient rounded towards minus infinity. The divisor must be positive.
    friend Big divide(const Big& a, const Big& b) {
        const bool negative = a.is_negative();
        const Big p = a.magnitude();
        Big quotient, rest;
        if (b.n_ == 1) {  // divide limb by limb
            uint128 left = 0;
            quotient.n_ = grown(p.n_);
            quotient.limbs_[p.n_] = 0;
            for (std::size_t i = p.n_; i-- > 0;) {
                left = left << 64 | p.limbs_[i];
                quotient.limbs_[i] = static_cast<std::uint64_t>(left / b.limbs_[0]);
                left %= b.limbs_[0];
            }
            quotient.trim();
            if (!negative) return quotient;
            return left == 0 ? -quotient : -quotient - Big(1);
        }
        for (unsigned bit = p.bit_length(); bit-- > 0;) {
            rest = rest << 1;
            if (p.limbs_[bit / 64] >> (bit % 64) & 1) rest = rest + Big(1);
            quotient = quotient << 1;
            if (!(rest < b)) {
                rest = rest - b;
                quotient = quotient + Big(1);
            }
        }
        if (!negative) return quotient;
        return rest.is_zero() ? -quotient : -quotient - Big(1);
    }

  private:
    std::uint64_t fill() const { return is_negative() ? ~std::uint64_t{0} : 0; }
    std::uint64_t limb(std::size_t i) const { return i < n_ ? limbs_[i] : fill(); }
    static std::size_t grown(std::size_t n) {
        if (n >= kMaxLimbs) throw std::overflow_error("a whole number is too large");
        return n + 1;
    }
    void trim() {
        while (n_ > 1) {
            const std::uint64_t rest = limbs_[n_ - 2] >> 63 ? ~std::uint64_t{0} : 0;
            if (limbs_[n_ - 1] != rest) return;
            --n_;
        }
    }

    std::size_t n_ = 1;
    std::uint64_t limbs_[kMaxLimbs];
};

}  // namespace steelyard
