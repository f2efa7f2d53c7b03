// Spreads strips, and chunks of T where the strips are too few, over threads. Exact: every number is the one that the
// plain loop over T computes.
#pragma once
#include <vector>

#include "abi.h"
#include "numbers.h"
#include "scratch.h"

namespace LATCHWORK_ISA {

struct Plan {
    int64_t strips_in_row, strip_width;  // how the lanes or units of a batch row are cut
    int64_t strips, chunks, length;
    int threads;

    int64_t begin(int64_t chunk) const { return chunk * length; }
    int64_t end(int64_t chunk, int64_t time) const { return chunk + 1 == chunks ? time : (chunk + 1) * length; }
};

constexpr int64_t SMALL = 1 << 14;        // scalars below which threads cost more than they give
constexpr int64_t SHORTEST_STRIP = 256;   // numbers of r
constexpr int64_t SHORTEST_CHUNK = 2048;  // steps

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline Plan make_plan(const Problem& p) {
    Plan plan{};
    const int64_t numbers_in_unit = p.degree ? p.degree * p.degree : 1;
    const int64_t shortest = divide_up(SHORTEST_STRIP, numbers_in_unit);
    plan.threads = p.batch * p.time * p.width * numbers_in_unit < SMALL || p.threads < 1 ? 1 : static_cast<int>(p.threads);
    int64_t parts = divide_up(plan.threads, p.batch), most = divide_up(p.width, shortest);
    parts = parts < most ? parts : most;
    plan.strip_width = divide_up(divide_up(p.width, parts), 16) * 16;
    plan.strips_in_row = divide_up(p.width, plan.strip_width);
    plan.strips = p.batch * plan.strips_in_row;
    int64_t length = p.chunk;
    if (length == 0) {
        length = divide_up(p.time, divide_up(plan.threads, plan.strips));
        length = length > SHORTEST_CHUNK ? length : SHORTEST_CHUNK;
    }
    plan.chunks = divide_up(p.time, length);
    plan.length = length;
    return plan;
}

template <class C>
bool same(const C* a, const C* b, int64_t size) {
    for (int64_t k = 0; k < size; ++k)
        if (!(a[k] == b[k] || (a[k] != a[k] && b[k] != b[k]))) return false;
    return true;
}
template <class C>
bool finite(const C* a, int64_t size) {
    for (int64_t k = 0; k < size; ++k)
        if (!(a[k] - a[k] == C(0))) return false;
    return true;
}

// Where the carries go that belong to x0, the last step's first: into a sum, or a list to be added up in order later.
template <class C>
struct Sum {
    C* sum;
    int64_t size;
    void operator()(const C* carry) {
        for (int64_t k = 0; k < size; ++k) sum[k] += carry[k];
    }
};
template <class C>
struct List {
    C* data = nullptr;
    int64_t size = 0, count = 0, room = 0;
    List() = default;
    List(const List&) = delete;
    ~List() { latchwork::release(data); }
    void operator()(const C* carry) {
        if (count == room) {
            room = room ? 2 * room : 4;
            C* more = static_cast<C*>(latchwork::allocate(room * size, sizeof(C)));
            for (int64_t k = 0; k < count * size; ++k) more[k] = data[k];
            latchwork::release(data);
            data = more;
        }
        for (int64_t k = 0; k < size; ++k) data[count * size + k] = carry[k];
        ++count;
    }
};
template <class C>
struct Ignore {
    void operator()(const C*) {}
};

template <class Strip>
struct Pass {
    using C = typename Strip::C;

    const Problem& p;
    const Plan plan;

    Strip strip(int64_t index) const { return Strip::make(p, index, plan.strips_in_row, plan.strip_width); }

    void forward() const {
        if (plan.chunks == 1)
            return in_parallel(plan.strips, plan.threads, [&](int64_t i) {
                Strip each = strip(i);
                Scratch<C> state(each.state_size());
                each.load_state(state.data, p.state);
                each.forward(0, p.time, state.data);
            });
        const int64_t chunks = plan.chunks, size = strip(0).state_size(), pair_size = strip(0).pair_size();
        Scratch<C> pairs(plan.strips * chunks * pair_size), states(plan.strips * chunks * size);
        Scratch<C> guesses(plan.strips * chunks * size);
        in_parallel(plan.strips * chunks, plan.threads, [&](int64_t i) {
            if (i % chunks + 1 < chunks)
                strip(i / chunks).compose(plan.begin(i % chunks), plan.end(i % chunks, p.time), true,
                                          pairs.data + i * pair_size);
        });
        for (int64_t i = 0; i < plan.strips; ++i) {
            C* before = states.data + i * chunks * size;
            strip(i).load_state(before, p.state);
            for (int64_t c = 0; c + 1 < chunks; ++c)
                strip(i).apply(pairs.data + (i * chunks + c) * pair_size, before + c * size, before + (c + 1) * size);
        }
        for (int64_t k = 0; k < plan.strips * chunks * size; ++k) guesses.data[k] = states.data[k];
        in_parallel(plan.strips * chunks, plan.threads, [&](int64_t i) {
            strip(i / chunks).forward(plan.begin(i % chunks), plan.end(i % chunks, p.time), states.data + i * size);
        });
        // A NaN that `compose` did not read shows as a chunk that did not start where the one before it ended.
        in_parallel(plan.strips, plan.threads, [&](int64_t i) {
            for (int64_t c = 1; c < chunks; ++c) {
                C* ended = states.data + (i * chunks + c - 1) * size;
                if (!same(ended, guesses.data + (i * chunks + c) * size, strip(i).state_size())) {
                    strip(i).forward(plan.begin(c), p.time, ended);
                    break;
                }
            }
        });
    }

    void compose() const {
        in_parallel(plan.strips, plan.threads, [&](int64_t i) {
            Strip each = strip(i);
            Scratch<C> pair(each.pair_size());
            each.compose(0, p.time, false, pair.data);
            each.store_pair(pair.data);
        });
    }

    void backward() const {
        if (plan.chunks > 1) return backward_chunked();
        in_parallel(plan.strips, plan.threads, [&](int64_t i) {
            Strip each = strip(i);
            const int64_t size = each.state_size();
            Scratch<C> carry(size), grad_x0(size);
            for (int64_t k = 0; k < size; ++k) carry.data[k] = grad_x0.data[k] = C(0);
            each.template backward<true>(0, p.time, carry.data, Sum<C>{grad_x0.data, size});
            each.store(p.grad_state, carry.data);
            if (p.reset.data) each.store(p.grad_x0, grad_x0.data);
        });
    }

    // What a chunk carries out often does not depend on what it takes in. An infinite carry finds out: if what comes out
    // is finite, nothing of it came through, and the value is right. Only a chunk that lets it through must wait.
    void backward_chunked() const {
        const int64_t chunks = plan.chunks, size = strip(0).state_size();
        Scratch<C> carries(plan.strips * chunks * size);  // at (strip, chunk): into that chunk, and then out of it
        Scratch<C> outs(plan.strips * chunks * size);
        Scratch<uint8_t> done(plan.strips * chunks);
        std::vector<List<C>> lists(plan.strips * chunks);
        for (int64_t i = 0; i < plan.strips * chunks; ++i) lists[i].size = size, done.data[i] = 0;
        in_parallel(plan.strips * chunks, plan.threads, [&](int64_t i) {
            if (i % chunks > 0) done.data[i] = probe(i / chunks, i % chunks, outs.data + i * size);
        });
        in_parallel(plan.strips, plan.threads, [&](int64_t i) {
            C* carry = carries.data + (i * chunks + chunks - 1) * size;
            for (int64_t k = 0; k < size; ++k) carry[k] = C(0);
            for (int64_t c = chunks - 1; c > 0; --c) {
                const int64_t here = i * chunks + c;
                bool closed = done.data[here];
                const C* out = closed ? outs.data + here * size : carries.data + here * size;
                if (!closed) run(here, carries.data + here * size, lists[here]);
                done.data[here] = !closed;
                for (int64_t k = 0; k < size; ++k) carries.data[(here - 1) * size + k] = out[k];
            }
            done.data[i * chunks] = 0;
        });
        in_parallel(plan.strips * chunks, plan.threads, [&](int64_t i) {
            if (!done.data[i]) run(i, carries.data + i * size, lists[i]);
        });
        for (int64_t i = 0; i < plan.strips; ++i) {
            Strip each = strip(i);
            each.store(p.grad_state, carries.data + i * chunks * size);
            if (p.reset.data) {
                Scratch<C> grad_x0(size);
                for (int64_t k = 0; k < size; ++k) grad_x0.data[k] = C(0);
                Sum<C> sum{grad_x0.data, size};
                for (int64_t c = chunks - 1; c >= 0; --c)
                    for (int64_t j = 0; j < lists[i * chunks + c].count; ++j)
                        sum(lists[i * chunks + c].data + j * size);
                each.store(p.grad_x0, grad_x0.data);
            }
        }
    }

    void run(int64_t index, C* carry, List<C>& list) const {
        const int64_t c = index % plan.chunks;
        strip(index / plan.chunks).template backward<true>(plan.begin(c), plan.end(c, p.time), carry, list);
    }

    // The carry out of a chunk, from as few of its first steps as suffice; false where it depends on what comes in.
    bool probe(int64_t index, int64_t chunk, C* out) const {
        Strip each = strip(index);
        const int64_t begin = plan.begin(chunk), end = plan.end(chunk, p.time), size = each.state_size();
        for (int64_t steps = 64;; steps *= 8) {
            const int64_t until = begin + steps < end ? begin + steps : end;
            for (int64_t k = 0; k < size; ++k) out[k] = infinity<C>();
            each.template backward<false>(begin, until, out, Ignore<C>{});
            if (finite(out, size)) return true;
            if (until == end) return false;
        }
    }
};

}  // namespace LATCHWORK_ISA
