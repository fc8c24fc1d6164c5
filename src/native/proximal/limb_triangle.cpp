#include "proximal/limb_triangle.hpp"

#include <algorithm>
#include <cmath>

namespace steelyard {

namespace {

double limit_bits(std::size_t limbs) { return 64.0 * static_cast<double>(limbs) - 2.0; }

// Returns an upper bound of log2(2^a + 2^b).
double log2_sum(double a, double b) {
    const double top = std::max(a, b), rest = std::min(a, b);
    return top + std::log2(1.0 + std::exp2(rest - top)) + 1e-9;
}

double log2_of(const Big& x) { return static_cast<double>(x.bit_length()); }

uint128 magnitude(int128 x) { return x < 0 ? -static_cast<uint128>(x) : static_cast<uint128>(x); }

unsigned width(uint128 x) {
    const auto high = static_cast<std::uint64_t>(x >> 64);
    return static_cast<unsigned>(high ? 64 + std::bit_width(high) : std::bit_width(static_cast<std::uint64_t>(x)));
}

// Returns x * mantissa / 2^shift rounded to the nearest integer (ties away from zero). mantissa < 2^53, shift >= 53.
int128 times(int128 x, std::uint64_t mantissa, unsigned shift) {
    const uint128 m = magnitude(x);
    const uint128 low = (m & ~std::uint64_t{0}) * mantissa;
    const uint128 high = (m >> 64) * mantissa + (low >> 64);
    const auto rest = static_cast<std::uint64_t>(low);
    uint128 result;
    if (shift >= 192)
        result = 0;
    else if (shift > 64)
        result = (shift - 65 < 128 ? ((high >> (shift - 65)) + 1) >> 1 : 0);
    else if (shift == 64)
        result = high + (rest >> 63);
    else
        result = (high << (64 - shift) | rest >> shift) + (rest >> (shift - 1) & 1);
    return x < 0 ? -static_cast<int128>(result) : static_cast<int128>(result);
}

}  // namespace

void Triangle::reserve(double bits) {
    const double wanted = log2_sum(bits_, bits);
    if (wanted < limit_bits(limbs_)) {
        bits_ = wanted;
        return;
    }
    bits_ = log2_sum(largest_bits(), bits);  // recompute, because the old bound may be too high after removals
    if (bits_ >= limit_bits(limbs_)) resize(static_cast<std::size_t>(bits_ + 2.0) / 64 + 1);
}

double Triangle::largest_bits() const {
    unsigned most = 0;
    const std::size_t n = entries(size_);
    if (is_narrow())
        for (std::size_t i = 0; i < n; ++i) most = std::max(most, width(magnitude(narrow()[i])));
    else
        for (std::size_t i = 0; i < n; ++i) most = std::max(most, get(i).bit_length());
    return static_cast<double>(most);
}

void Triangle::resize(std::size_t limbs) {
    if (limbs > Big::kMaxLimbs - 2) throw std::overflow_error("sums of products are too large to be kept");
    const std::size_t n = entries(size_);
    AlignedVector<std::uint64_t> data(limbs * n);
    for (std::size_t i = 0; i < n; ++i) get(i).store(data.data() + i * limbs, limbs);
    data_.swap(data);
    limbs_ = limbs;
}

void Triangle::shrink() {
    if (is_narrow()) return;
    bits_ = largest_bits();
    const std::size_t limbs = std::max<std::size_t>(2, static_cast<std::size_t>(bits_ + 2.0) / 64 + 1);
    if (limbs < limbs_) resize(limbs);
}

void Triangle::set(std::size_t place, const Big& value) {
    const double bits = log2_of(value);
    if (bits >= limit_bits(limbs_)) resize(static_cast<std::size_t>(bits + 2.0) / 64 + 1);
    bits_ = std::max(bits_, bits);
    value.store(data_.data() + place * limbs_, limbs_);
}

void Triangle::add_at(std::size_t place, int128 value) {
    if (is_narrow()) {
        narrow()[place] += value;
        return;
    }
    (get(place) + Big::of(value)).store(data_.data() + place * limbs_, limbs_);
}

void Triangle::add(const Triangle& other, int sign) {
    reserve(other.bits_);
    const std::size_t n = entries(size_);
    if (is_narrow() && other.is_narrow()) {
        int128* mine = narrow();
        const int128* theirs = other.narrow();
        if (sign > 0)
            for (std::size_t i = 0; i < n; ++i) mine[i] += theirs[i];
        else
            for (std::size_t i = 0; i < n; ++i) mine[i] -= theirs[i];
        return;
    }
    if (other.limbs_ > limbs_) resize(other.limbs_);
    for (std::size_t i = 0; i < n; ++i) {
        const Big theirs = other.get(i);
        (get(i) + (sign > 0 ? theirs : -theirs)).store(data_.data() + i * limbs_, limbs_);
    }
}

void Triangle::add_row(std::span<const std::int64_t> v, std::int64_t w) {
    double top = 1.0;
    for (const std::int64_t x : v) top = std::max(top, std::fabs(static_cast<double>(x)));
    const double weight = std::fabs(static_cast<double>(w));
    if (weight * top >= 0x1p62) {  // the product of the weight and one value does not fit in a register
        std::vector<Big> wide(v.begin(), v.end());
        return add_row(wide, Big(w));
    }
    reserve(std::log2(std::max(weight, 1.0)) + 2.0 * std::log2(top) + 1e-9);
    const std::size_t d = v.size();
    for (std::size_t a = 0, at = 0; a <= d; ++a) {
        const std::int64_t left = a < d ? w * v[a] : w;
        if (left == 0) {
            at += a + 1;
            continue;
        }
        if (is_narrow()) {
            int128* out = narrow() + at;
            for (std::size_t b = 0; b < a; ++b) out[b] += static_cast<int128>(left) * v[b];
            out[a] += static_cast<int128>(left) * (a < d ? v[a] : 1);
            at += a + 1;
            continue;
        }
        for (std::size_t b = 0; b <= a; ++b, ++at) add_at(at, static_cast<int128>(left) * (b < d ? v[b] : 1));
    }
}

void Triangle::add_row(std::span<const Big> v, const Big& w) {
    unsigned top = 1;
    for (const Big& x : v) top = std::max(top, x.bit_length());
    reserve(log2_of(w) + 2.0 * top);
    const std::size_t d = v.size();
    for (std::size_t a = 0, at = 0; a <= d; ++a) {
        const Big left = a < d ? w * v[a] : w;
        if (left.is_zero()) {
            at += a + 1;
            continue;
        }
        for (std::size_t b = 0; b <= a; ++b, ++at)
            (get(at) + (b < d ? left * v[b] : left)).store(data_.data() + at * limbs_, limbs_);
    }
}

void Triangle::refine(std::span<const unsigned> shifts, unsigned weight_shift) {
    unsigned top = 0;
    for (const unsigned shift : shifts) top = std::max(top, shift);
    if (top == 0 && weight_shift == 0) return;
    const auto shift_of = [&](std::size_t a, std::size_t b) {
        return (a + 1 < size_ ? shifts[a] : 0) + (b + 1 < size_ ? shifts[b] : 0) + weight_shift;
    };
    double bits = bits_ + 2.0 * top + weight_shift;
    if (bits >= limit_bits(limbs_)) {
        // Numbers are checked one by one: the numbers that are shifted need not be the largest numbers.
        unsigned most = 0;
        for (std::size_t a = 0, at = 0; a < size_; ++a)
            for (std::size_t b = 0; b <= a; ++b, ++at)
                if (const unsigned length = get(at).bit_length()) most = std::max(most, length + shift_of(a, b));
        bits = static_cast<double>(most);
    }
    if (bits >= limit_bits(limbs_)) resize(static_cast<std::size_t>(bits + 2.0) / 64 + 1);
    bits_ = bits;
    for (std::size_t a = 0, at = 0; a < size_; ++a)
        for (std::size_t b = 0; b <= a; ++b, ++at) {
            const unsigned shift = shift_of(a, b);
            if (is_narrow()) {
                if (narrow()[at]) narrow()[at] = static_cast<int128>(static_cast<uint128>(narrow()[at]) << shift);
            } else if (shift)
                (get(at) << shift).store(data_.data() + at * limbs_, limbs_);
        }
}

void Triangle::translate(std::span<const Big> by) {
    const std::size_t d = size_ - 1;
    std::size_t top = 0;
    bool any = false;
    for (const Big& x : by) {
        top = std::max<std::size_t>(top, x.bit_length());
        any |= !x.is_zero();
    }
    if (!any) return;
    const Big n = count();
    std::vector<Big> sums(d), moved(d);
    unsigned most = 1;
    for (std::size_t j = 0; j < d; ++j) {
        sums[j] = get(d, j);
        moved[j] = sums[j] - n * by[j];
        most = std::max({most, sums[j].bit_length(), moved[j].bit_length()});
    }
    reserve(static_cast<double>(most + top) + 1.0);
    if (is_narrow() && top < 63) {
        std::vector<uint128> s(d), m(d), b(d);
        for (std::size_t j = 0; j < d; ++j) {
            s[j] = static_cast<uint128>(sums[j].narrow());
            m[j] = static_cast<uint128>(moved[j].narrow());
            b[j] = static_cast<uint128>(by[j].narrow());
        }
        // Intermediate values wrap modulo 2^128, but the result fits.
        for (std::size_t i = 0, at = 0; i < d; ++i)
            for (std::size_t j = 0; j <= i; ++j, ++at)
                narrow()[at] = static_cast<int128>(static_cast<uint128>(narrow()[at]) - b[i] * s[j] - m[i] * b[j]);
    } else {
        for (std::size_t i = 0, at = 0; i < d; ++i)
            for (std::size_t j = 0; j <= i; ++j, ++at)
                (get(at) - by[i] * sums[j] - moved[i] * by[j]).store(data_.data() + at * limbs_, limbs_);
    }
    for (std::size_t j = 0; j < d; ++j) moved[j].store(data_.data() + place(d, j) * limbs_, limbs_);
}

void Triangle::decay(double factor) {
    int exponent;
    const auto mantissa = static_cast<std::int64_t>(std::ldexp(std::frexp(factor, &exponent), 53));
    const int shift = 53 - exponent;
    const std::size_t n = entries(size_);
    if (is_narrow() && shift >= 53) {
        for (std::size_t i = 0; i < n; ++i)
            narrow()[i] = times(narrow()[i], static_cast<std::uint64_t>(mantissa), static_cast<unsigned>(shift));
        return;
    }
    for (std::size_t i = 0; i < n; ++i) {
        const Big product = get(i) * Big(mantissa);
        const Big m = product.magnitude();
        const Big rounded =
            shift > 0 ? ((m >> static_cast<unsigned>(shift - 1)) + Big(1)) >> 1 : m << static_cast<unsigned>(-shift);
        set(i, product.is_negative() ? -rounded : rounded);
    }
}

bool Triangle::is_zero() const {
    return std::all_of(data_.begin(), data_.end(), [](std::uint64_t limb) { return limb == 0; });
}

Triangle Triangle::permute_features(std::span<const std::int64_t> from) const {
    Triangle result(from.size() + 1);
    if (limbs_ > 2) result.resize(limbs_);
    result.bits_ = bits_;
    const auto old = [&](std::size_t j) { return j < from.size() ? from[j] : static_cast<std::int64_t>(size_) - 1; };
    for (std::size_t a = 0, at = 0; a < result.size_; ++a)
        for (std::size_t b = 0; b <= a; ++b, ++at) {
            if (old(a) < 0 || old(b) < 0) continue;
            const auto i = static_cast<std::size_t>(old(a)), j = static_cast<std::size_t>(old(b));
            const std::size_t source = place(std::max(i, j), std::min(i, j));
            std::copy_n(data_.data() + source * limbs_, limbs_, result.data_.data() + at * limbs_);
        }
    return result;
}

std::vector<std::uint8_t> Triangle::to_bytes(std::size_t* bytes_each) const {
    const auto each = static_cast<std::size_t>(largest_bits()) / 8 + 1;
    const std::size_t n = entries(size_);
    std::vector<std::uint8_t> bytes(n * each);
    for (std::size_t i = 0; i < n; ++i) std::memcpy(bytes.data() + i * each, data_.data() + i * limbs_, each);
    *bytes_each = each;
    return bytes;
}

Triangle Triangle::from_bytes(std::size_t size, std::span<const std::uint8_t> bytes, std::size_t bytes_each) {
    Triangle result(size);
    const std::size_t n = entries(size);
    if (bytes_each == 0 || bytes_each > 8 * (Big::kMaxLimbs - 2) || bytes.size() / bytes_each != n ||
        bytes.size() % bytes_each != 0)
        throw std::invalid_argument("a triangle has the wrong number of bytes");
    if (bytes_each > 15) result.resize(bytes_each / 8 + 1);
    for (std::size_t i = 0; i < n; ++i) {
        auto* limbs = reinterpret_cast<std::uint8_t*>(result.data_.data() + i * result.limbs_);
        std::memcpy(limbs, bytes.data() + i * bytes_each, bytes_each);
        if (limbs[bytes_each - 1] & 0x80) std::memset(limbs + bytes_each, 0xff, 8 * result.limbs_ - bytes_each);
    }
    result.bits_ = result.largest_bits();
    return result;
}

// -- lazy sums of triangles ---------------------------------------------------------------------------

void TriangleSum::add(const Triangle& triangle) {
    bits_ = terms_.empty() ? triangle.bits() : log2_sum(bits_, triangle.bits());
    terms_.push_back(&triangle);
}

void TriangleSum::add(Triangle&& triangle) {
    own_.push_back(std::make_shared<const Triangle>(std::move(triangle)));
    add(*own_.back());
}

bool TriangleSum::is_narrow() const {
    return bits_ < limit_bits(2) &&
           std::all_of(terms_.begin(), terms_.end(), [](const Triangle* t) { return t->is_narrow(); });
}

Big TriangleSum::get(std::size_t row, std::size_t column) const {
    const std::size_t at = Triangle::place(row, column);
    if (is_narrow()) {
        int128 sum = 0;
        for (const Triangle* term : terms_) sum += term->narrow()[at];
        return Big::of(sum);
    }
    Big sum(0);
    for (const Triangle* term : terms_) sum = sum + term->get(at);
    return sum;
}

const int128* TriangleSum::row(std::size_t row, std::vector<int128>& buffer) const {
    const std::size_t at = Triangle::place(row, 0);
    if (terms_.size() == 1) return terms_.front()->narrow() + at;
    buffer.assign(row + 1, 0);
    int128* out = buffer.data();
    for (const Triangle* term : terms_) {
        const int128* from = term->narrow() + at;
        for (std::size_t b = 0; b <= row; ++b) out[b] += from[b];
    }
    return out;
}

Triangle TriangleSum::formed() const {
    if (terms_.empty()) return Triangle(size_);
    Triangle sum = *terms_.front();
    for (std::size_t k = 1; k < terms_.size(); ++k) sum.add(*terms_[k], 1);
    return sum;
}

}  // namespace steelyard
