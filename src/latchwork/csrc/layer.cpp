// A layer as one pass over its rows, forward and backward: for as many rows at a time as lie in the cache, what comes before
// the recurrence, the recurrence, and what follows. Compiled once for each instruction set.
#include "drive.h"
#include "response.h"
#include "steps.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

namespace LATCHWORK_ISA {

// What a layer does in its recurrence, on lanes [first, first + lanes) of rows that lie in one place.
struct Recurrence {
    const Layer& p;
    int64_t first, lanes;

    const float* start(int64_t b) const { return (p.start ? p.start + b * p.state : p.x0) + first; }
    // The steps from `row` on, in the sequence of that row; the gradients are empty.
    Problem problem(int64_t row, int64_t steps, Place z, Place x) const {
        Problem q{};
        q.time = steps, q.width = lanes;
        q.r = {z.at + first, 0, z.apart}, q.s = {z.at + p.state + first, 0, z.apart}, q.x = {x.at + first, 0, x.apart};
        q.x0.data = const_cast<float*>(p.x0 ? p.x0 + first : nullptr);
        q.reset = {p.reset ? const_cast<uint8_t*>(p.reset) + row : nullptr, 0, 1};
        return q;
    }
    // state (lanes): before the first row, and then after the last.
    void forward(int64_t row, int64_t rows, Place z, Place x, float* state) const {
        for (int64_t r = 0, steps; r < rows; r += steps) {
            const int64_t b = (row + r) / p.time, t = (row + r) % p.time;
            steps = rows - r < p.time - t ? rows - r : p.time - t;
            if (t == 0) std::memcpy(state, start(b), lanes * sizeof(float));
            run_steps(problem(row + r, steps, z.rows_from(r), x.rows_from(r)), state);
            const int64_t last = (p.last ? p.last[b] : p.time - 1) - t;
            if (0 <= last && last < steps)
                std::memcpy(p.x_last + b * p.state + first, x.row(r + last) + first, lanes * sizeof(float));
        }
    }
    // grad_x: of the gate and the output; the gradient of x_last is added to it here. grad_z: its r and s are written.
    // carry (lanes): what comes from the row after the last, and then what goes to the row before the first.
    void backward(int64_t row, int64_t rows, Place z, Place x, Place grad_x, Place grad_z, float* carry) const {
        for (int64_t stop = rows, steps; stop > 0; stop -= steps) {
            const int64_t t_end = (row + stop - 1) % p.time + 1;
            steps = stop < t_end ? stop : t_end;
            const int64_t r = stop - steps, b = (row + r) / p.time, t = t_end - steps;
            if (t_end == p.time) std::memset(carry, 0, lanes * sizeof(float));
            const int64_t last = (p.last ? p.last[b] : p.time - 1) - t;
            if (p.grad_x_last && 0 <= last && last < steps) {
                float* to = grad_x.row(r + last) + first;
                for (int64_t j = 0; j < lanes; ++j) to[j] += p.grad_x_last[b * p.state + first + j];
            }
            Problem q = problem(row + r, steps, z.rows_from(r), x.rows_from(r));
            q.state.data = const_cast<float*>(t ? x.row(r - 1) + first : start(b));
            q.grad = {grad_x.row(r) + first, 0, grad_x.apart};
            q.grad_r = {grad_z.row(r) + first, 0, grad_z.apart};
            q.grad_s = {grad_z.row(r) + p.state + first, 0, grad_z.apart};
            run_steps_back(q, carry, p.grad_x0 ? p.grad_x0 + b * p.state + first : nullptr);
            if (t == 0 && p.grad_start) std::memcpy(p.grad_start + b * p.state + first, carry, lanes * sizeof(float));
        }
    }
};

// How the rows are spread over threads. Without a recurrence, or where each thread can have sequences of its own, each goes
// through its rows alone, a block at a time. Otherwise all do a stretch of rows together: what comes before the recurrence,
// each some blocks; the recurrence, each some lanes; what follows, each some blocks.
struct Spread {
    int64_t rows, threads, stretch, lanes;
    bool together;
    explicit Spread(const Layer& p) : rows(p.batch * p.time) {
        const int64_t most = rows / (2 * BLOCK);
        threads = p.threads < most ? p.threads : most;
        if (threads < 1) threads = 1;
        together = p.output.weight && p.batch % threads && p.batch < 8 * threads;
        stretch = together ? threads * 16 * BLOCK : rows;
        lanes = round_up((p.state + threads - 1) / threads, LANES);
        unit = together ? BLOCK : p.output.weight && p.time ? p.time : 1;
    }
    // Where the rows of a thread begin, of `count` rows that are done at once; the next thread's begin where they end.
    int64_t begin(int64_t thread, int64_t count) const {
        if (thread == threads) return count;
        const int64_t units = (count + unit - 1) / unit, at = units * thread / threads * unit;
        return at < count ? at : count;
    }
    // f(row, rows) for the blocks of rows [begin, end), from the first on or from the last.
    template <class F>
    static void blocks(int64_t begin, int64_t end, F f) {
        for (int64_t row = begin; row < end; row += BLOCK) f(row, end - row < BLOCK ? end - row : BLOCK);
    }
    template <class F>
    static void blocks_back(int64_t begin, int64_t end, F f) {
        for (int64_t row = begin + (end - begin - 1) / BLOCK * BLOCK; row >= begin; row -= BLOCK)
            f(row, end - row < BLOCK ? end - row : BLOCK);
    }

  private:
    int64_t unit;  // rows that stay together
};

// Everything that both passes need, and where z and x are in the tape.
struct LayerPass {
    const Layer& p;
    const Drive drive;
    const Response response;
    const Spread spread;
    LayerPass(const Layer& p, bool backward) : p(p), drive(p, backward), response(p, backward), spread(p) {}

    Kept kept(int64_t row) const { return drive.tape.rows(p.tape, spread.rows).rows_from(row); }
    Place z(int64_t row, const Kept& kept) const {
        return p.up.weight ? kept.z : Place{p.z + row * p.outputs, p.outputs};
    }
    Recurrence lanes(int64_t thread) const {
        const int64_t first = thread * spread.lanes < p.state ? thread * spread.lanes : p.state;
        return {p, first, p.state - first < spread.lanes ? p.state - first : spread.lanes};
    }

    void forward() const {
        for (int64_t b = 0; b < p.batch; ++b) {  // for sequences that end before their first step
            if (p.x_last) std::memcpy(p.x_last + b * p.state, Recurrence{p, 0, 0}.start(b), p.state * sizeof(float));
            if (p.v_last) copy_padded(p.first ? p.first + b * p.width : nullptr, p.width, p.width, p.v_last + b * p.width);
        }
        const int64_t size = DriveForward::size(drive) + ResponseForward::size(response) + line(p.state);
        const int64_t block = BLOCK * drive.tape.size();
        Scratch<float> memory(spread.threads * size), own(spread.threads * block);
        Scratch<float> shared(spread.together && !p.tape ? spread.stretch * drive.tape.size() : 0);
        const auto with = [&](int64_t thread, auto f) {
            Arena arena{memory.data + thread * size};
            DriveForward before(drive, arena, own.data + thread * block);
            ResponseForward after(response, arena);
            f(before, after, arena.take(p.state));
        };
        if (!spread.together)
            return in_parallel(spread.threads, spread.threads, [&](int64_t thread) {
                with(thread, [&](auto& before, auto& after, float* state) {
                    const int64_t begin = spread.begin(thread, spread.rows), end = spread.begin(thread + 1, spread.rows);
                    spread.blocks(begin, end, [&](int64_t row, int64_t rows) {
                        const Kept place = p.tape ? kept(row) : Kept{};
                        const Kept here = before(row, rows, p.tape ? &place : nullptr);
                        if (!p.output.weight) return;
                        Recurrence{p, 0, p.state}.forward(row, rows, z(row, here), here.x, state);
                        after(row, rows, here.x, z(row, here));
                    });
                });
            });
        for (int64_t first = 0; first < spread.rows; first += spread.stretch) {
            const int64_t count = spread.rows - first < spread.stretch ? spread.rows - first : spread.stretch;
            const Kept here = p.tape ? kept(first) : drive.tape.rows(shared.data, spread.stretch);
            const auto each_block = [&](auto f) {
                in_parallel(spread.threads, spread.threads, [&](int64_t thread) {
                    with(thread, [&](auto& before, auto& after, float*) {
                        spread.blocks(spread.begin(thread, count), spread.begin(thread + 1, count),
                                      [&](int64_t r, int64_t rows) { f(before, after, r, rows); });
                    });
                });
            };
            each_block([&](auto& before, auto&, int64_t r, int64_t rows) {
                const Kept place = here.rows_from(r);
                before(first + r, rows, &place);
            });
            in_parallel(spread.threads, spread.threads, [&](int64_t thread) {
                with(thread, [&](auto&, auto&, float* state) {
                    lanes(thread).forward(first, count, z(first, here), here.x, state);
                });
            });
            each_block([&](auto&, auto& after, int64_t r, int64_t rows) {
                after(first + r, rows, here.x.rows_from(r), z(first, here).rows_from(r));
            });
        }
    }

    void backward() const {
        const int64_t D = drive.D, Z = drive.Z, S = response.S, threads = spread.threads;
        const int64_t stretches = spread.rows ? (spread.rows + spread.stretch - 1) / spread.stretch : 0;
        const int64_t size = DriveBackward::size(drive) + ResponseBackward::size(response) + line(p.state);
        const int64_t zero = DriveBackward::zero_size(drive) + ResponseBackward::zero_size(response);
        // The gradients of z and x, of as many rows as are done at once: by one thread, or by all together.
        const int64_t block = (spread.together ? spread.stretch : BLOCK) * (Z + S) + 16, copies = spread.together ? 1 : threads;
        Scratch<float> memory(threads * size), zeros(threads * zero), both(copies * block), carries(stretches * threads * D);
        Scratch<uint8_t> carried(stretches * threads);
        std::memset(zeros.data, 0, threads * zero * sizeof(float));
        const auto with = [&](int64_t thread, auto f) {
            Arena arena{memory.data + thread * size}, zeroed{zeros.data + thread * zero};
            DriveBackward before(drive, arena, zeroed);
            ResponseBackward after(response, arena, zeroed);
            f(before, after, arena.take(p.state));
        };
        const auto place_z = [&](int64_t row, float* block) {
            return p.up.weight ? Place{block, Z} : Place{p.grad_z + row * p.outputs, p.outputs};
        };
        const auto respond = [&](auto& after, int64_t row, int64_t rows, Place grad_z, Place grad_x) {
            after(row, rows, kept(row).x, z(row, kept(row)), grad_x, grad_z);
        };
        const auto keep_carry = [&](auto& before, int64_t part) {
            carried.data[part] = before.carried != nullptr;
            if (before.carried) std::memcpy(carries.data + part * D, before.carried, D * sizeof(float));
        };
        const auto drive_back = [&](auto& before, int64_t row, int64_t rows, Place grad_z) {
            if (p.up.weight) before(row, rows, grad_z.at, p.output.weight ? p.grad_y + row * p.width : nullptr);
        };
        if (!spread.together)
            in_parallel(stretches * threads, threads, [&](int64_t thread) {
                with(thread, [&](auto& before, auto& after, float* carry) {
                    const int64_t begin = spread.begin(thread, spread.rows), end = spread.begin(thread + 1, spread.rows);
                    float* here = both.data + thread * block;
                    const Place grad_x{here + BLOCK * Z, S};
                    spread.blocks_back(begin, end, [&](int64_t row, int64_t rows) {
                        const Place grad_z = place_z(row, here);
                        if (p.output.weight) {
                            const Kept place = kept(row);
                            respond(after, row, rows, grad_z, grad_x);
                            Recurrence{p, 0, p.state}.backward(row, rows, z(row, place), place.x, grad_x, grad_z, carry);
                        } else {
                            for (int64_t r = 0; r < rows; ++r)
                                std::memcpy(here + r * Z, p.grad_z + (row + r) * p.outputs, p.outputs * sizeof(float));
                        }
                        drive_back(before, row, rows, grad_z);
                    });
                    keep_carry(before, thread);
                });
            });
        Scratch<float> lane_carries(spread.together ? p.state : 0);
        for (int64_t s = stretches - 1; s >= 0 && spread.together; --s) {
            const int64_t first = s * spread.stretch;
            const int64_t count = spread.rows - first < spread.stretch ? spread.rows - first : spread.stretch;
            const Place grad_z = place_z(first, both.data), grad_x{both.data + spread.stretch * Z, S};
            in_parallel(threads, threads, [&](int64_t thread) {
                with(thread, [&](auto&, auto& after, float*) {
                    spread.blocks(spread.begin(thread, count), spread.begin(thread + 1, count), [&](int64_t r, int64_t rows) {
                        respond(after, first + r, rows, grad_z.rows_from(r), grad_x.rows_from(r));
                    });
                });
            });
            in_parallel(threads, threads, [&](int64_t thread) {
                const Recurrence own = lanes(thread);
                own.backward(first, count, z(first, kept(first)), kept(first).x, grad_x, grad_z, lane_carries.data + own.first);
            });
            in_parallel(threads, threads, [&](int64_t thread) {
                with(thread, [&](auto& before, auto&, float*) {
                    const int64_t begin = spread.begin(thread, count), end = spread.begin(thread + 1, count);
                    spread.blocks_back(begin, end, [&](int64_t r, int64_t rows) {
                        drive_back(before, first + r, rows, grad_z.rows_from(r));
                    });
                    keep_carry(before, s * threads + thread);
                });
            });
        }
        with(0, [&](auto& before, auto&, float*) {
            for (int64_t part = 0; part < stretches * threads; ++part)
                if (carried.data[part]) {
                    const int64_t first = part / threads * spread.stretch, rest = spread.rows - first;
                    const int64_t count = rest < spread.stretch ? rest : spread.stretch;
                    before.send(first + spread.begin(part % threads, count) - 1, carries.data + part * D);
                }
        });
        for (int64_t thread = 0; thread < threads; ++thread)
            with(thread, [&](auto& before, auto& after, float*) {
                before.hand_out(thread == 0);
                after.hand_out(thread == 0);
            });
    }
};

}  // namespace LATCHWORK_ISA

extern "C" {
int JOIN(latchwork_layer_forward_, LATCHWORK_ISA)(const Layer* p) {
    LATCHWORK_ISA::LayerPass(*p, false).forward();
    return DONE;
}
int JOIN(latchwork_layer_backward_, LATCHWORK_ISA)(const Layer* p) {
    LATCHWORK_ISA::LayerPass(*p, true).backward();
    return DONE;
}
int64_t JOIN(latchwork_layer_tape_, LATCHWORK_ISA)(const Layer* p) { return LATCHWORK_ISA::Tape::of(*p).size(); }
}
