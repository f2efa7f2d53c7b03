// A layer as one pass over its rows, forward and backward: for as many rows at a time as lie in the cache, what comes before
// the recurrence, the recurrence, and what follows. Compiled once for each instruction set.
#include "drive.h"
#include "response.h"
#include "steps.h"
#include <algorithm>
#include <thread>

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

namespace LATCHWORK_ISA {

// What a layer does in its recurrence, on rows that lie in one place.
struct Recurrence {
    const Layer& p;

    const float* start(int64_t b) const { return p.start ? p.start + b * p.state : p.x0; }
    // The steps from `row` on, in the sequence of that row; the gradients are empty.
    Problem problem(int64_t row, int64_t steps, Place z, Place x) const {
        Problem q{};
        q.time = steps, q.width = p.state;
        q.r = {z.at, 0, z.apart}, q.s = {z.at + p.state, 0, z.apart}, q.x = {x.at, 0, x.apart};
        q.x0.data = const_cast<float*>(p.x0);
        q.reset = {p.reset ? const_cast<uint8_t*>(p.reset) + row : nullptr, 0, 1};
        return q;
    }
    // state: before the first row, and then after the last.
    void forward(int64_t row, int64_t rows, Place z, Place x, float* state) const {
        for (int64_t r = 0, steps; r < rows; r += steps) {
            const int64_t b = (row + r) / p.time, t = (row + r) % p.time;
            steps = rows - r < p.time - t ? rows - r : p.time - t;
            if (t == 0) std::memcpy(state, start(b), p.state * sizeof(float));
            run_steps(problem(row + r, steps, z.rows_from(r), x.rows_from(r)), state);
            const int64_t last = (p.last ? p.last[b] : p.time - 1) - t;
            if (0 <= last && last < steps)
                std::memcpy(p.x_last + b * p.state, x.row(r + last), p.state * sizeof(float));
        }
    }
    // grad_x: of the gate and the output; the gradient of x_last is added to it here. grad_z: its r and s are written.
    // carry: what comes from the row after the last, and then what goes to the row before the first.
    void backward(int64_t row, int64_t rows, Place z, Place x, Place grad_x, Place grad_z, float* carry) const {
        for (int64_t stop = rows, steps; stop > 0; stop -= steps) {
            const int64_t t_end = (row + stop - 1) % p.time + 1;
            steps = stop < t_end ? stop : t_end;
            const int64_t r = stop - steps, b = (row + r) / p.time, t = t_end - steps;
            if (t_end == p.time) std::memset(carry, 0, p.state * sizeof(float));
            const int64_t last = (p.last ? p.last[b] : p.time - 1) - t;
            if (p.grad_x_last && 0 <= last && last < steps) {
                float* to = grad_x.row(r + last);
                for (int64_t j = 0; j < p.state; ++j) to[j] += p.grad_x_last[b * p.state + j];
            }
            Problem q = problem(row + r, steps, z.rows_from(r), x.rows_from(r));
            q.state.data = const_cast<float*>(t ? x.row(r - 1) : start(b));
            q.grad = {grad_x.row(r), 0, grad_x.apart};
            q.grad_r = {grad_z.row(r), 0, grad_z.apart};
            q.grad_s = {grad_z.row(r) + p.state, 0, grad_z.apart};
            run_steps_back(q, carry, p.grad_x0 ? p.grad_x0 + b * p.state : nullptr);
            if (t == 0 && p.grad_start) std::memcpy(p.grad_start + b * p.state, carry, p.state * sizeof(float));
        }
    }
};

// How the rows are spread over threads. Without a recurrence, or where each thread can have sequences of its own, each goes
// through its rows alone, a block at a time. Otherwise threads take blocks in turn: they wait for each other at the
// recurrence alone.
struct Spread {
    int64_t rows, block, threads, blocks;
    bool in_turn;
    Spread(const Layer& p, int64_t block) : rows(p.batch * p.time), block(block), blocks((rows + block - 1) / block) {
        const int64_t most = rows / (2 * block);
        threads = p.threads < most ? p.threads : most;
        if (threads < 1) threads = 1;
        in_turn = p.output.weight && p.batch % threads && p.batch < 8 * threads;
        unit = p.output.weight && p.time ? p.time : 1;
    }
    int64_t runs() const { return in_turn ? blocks : threads; }
    // f(number, begin, end) for each run of rows that one thread of the team does, one row after the other.
    template <class F>
    void each_run(int64_t thread, int64_t team, bool back, F f) const {
        if (!in_turn) {
            const int64_t begin = start(thread, team), end = start(thread + 1, team);
            if (begin < end) f(thread, begin, end);
            return;
        }
        for (int64_t turn = thread; turn < blocks; turn += team) {
            const int64_t begin = (back ? blocks - 1 - turn : turn) * block;
            f(turn, begin, rows - begin < block ? rows : begin + block);
        }
    }
    // f(row, rows) for the blocks of rows [begin, end), from the first on or from the last.
    template <class F>
    void each_block(int64_t begin, int64_t end, F f) const {
        for (int64_t row = begin; row < end; row += block) f(row, end - row < block ? end - row : block);
    }
    template <class F>
    void each_block_back(int64_t begin, int64_t end, F f) const {
        for (int64_t row = begin + (end - begin - 1) / block * block; row >= begin; row -= block)
            f(row, end - row < block ? end - row : block);
    }

  private:
    int64_t unit;  // rows that stay together
    int64_t start(int64_t thread, int64_t team) const {
        const int64_t units = (rows + unit - 1) / unit, at = units * thread / team * unit;
        return thread < team && at < rows ? at : rows;
    }
};

// The state at the end of a run, or what goes back from its beginning: each thread's own, or handed on from turn to turn.
struct Carry {
    Scratch<float> memory;
    const int64_t size;
    const bool in_turn;
    int64_t turn = 0;
    Carry(const Spread& spread, int64_t size)
        : memory((spread.in_turn ? 1 : spread.threads) * line(size)), size(line(size)), in_turn(spread.in_turn) {}
    template <class F>
    void with(int64_t number, F f) {
        if (!in_turn) return f(memory.data + number * size);
        while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != number) std::this_thread::yield();
        f(memory.data);
        __atomic_store_n(&turn, number + 1, __ATOMIC_RELEASE);
    }
};

// Everything that both passes need, and where z and x are in the tape.
struct LayerPass {
    const Layer& p;
    const Drive drive;
    const Response response;
    const Recurrence recurrence;
    const Spread spread;
    LayerPass(const Layer& p, bool backward)
        : p(p), drive(p, backward), response(p, drive.block, backward), recurrence{p}, spread(p, drive.block) {}

    Kept kept(int64_t row) const { return drive.tape.rows(p.tape, spread.rows).rows_from(row); }
    Place z(int64_t row, const Kept& kept) const {
        return p.up.weight ? kept.z : Place{p.z + row * p.outputs, p.outputs};
    }

    void forward() const {
        for (int64_t b = 0; b < p.batch; ++b) {  // for sequences that end before their first step
            if (p.x_last) std::memcpy(p.x_last + b * p.state, recurrence.start(b), p.state * sizeof(float));
            if (p.v_last) copy_padded(p.first ? p.first + b * p.width : nullptr, p.width, p.width, p.v_last + b * p.width);
        }
        // The two parts work one after the other, in the same memory.
        const int64_t size = line(std::max(DriveForward::size(drive), ResponseForward::size(response)));
        const int64_t block = drive.block * drive.tape.size();
        Scratch<float> memory(spread.threads * size), own(spread.threads * block);
        Carry states(spread, p.state);
        in_team(spread.threads, [&](int64_t thread, int64_t team) {
            Arena arena{memory.data + thread * size};
            DriveForward before(drive, arena, own.data + thread * block);
            ResponseForward after(response, arena);
            spread.each_run(thread, team, false, [&](int64_t number, int64_t begin, int64_t end) {
                spread.each_block(begin, end, [&](int64_t row, int64_t rows) {
                    const Kept place = p.tape ? kept(row) : Kept{};
                    const Kept here = before(row, rows, p.tape ? &place : nullptr);
                    if (!p.output.weight) return;
                    states.with(number, [&](float* state) { recurrence.forward(row, rows, z(row, here), here.x, state); });
                    after(row, rows, here.x, z(row, here));
                });
            });
        });
    }

    void backward() const {
        const int64_t D = drive.D, Z = drive.Z, threads = spread.threads, runs = spread.runs();
        // The two parts work one after the other, in the same memory.
        const int64_t early = line(std::max(DriveBackward::size(drive), ResponseBackward::size(response)));
        const int64_t size = early + line(std::max(DriveBackward::late_size(drive), drive.block * Z)) + line(ROWS);
        const int64_t zero = DriveBackward::zero_size(drive) + ResponseBackward::zero_size(response);
        Scratch<float> memory(threads * size), zeros(threads * zero), sent(runs * D);
        Scratch<int64_t> senders(runs);  // the first row of each run, if it sends something to the row before it, or 0
        std::memset(zeros.data, 0, threads * zero * sizeof(float));
        std::memset(senders.data, 0, runs * sizeof(int64_t));
        Carry carries(spread, p.state);
        const auto with = [&](int64_t thread, auto f) {
            Arena arena{memory.data + thread * size}, zeroed{zeros.data + thread * zero};
            float* late = memory.data + thread * size + early;
            DriveBackward before(drive, arena, {late}, zeroed);
            ResponseBackward after(response, arena, zeroed);
            f(before, after, late);
        };
        in_team(threads, [&](int64_t thread, int64_t team) {
            with(thread, [&](auto& before, auto& after, float* own_z) {
                spread.each_run(thread, team, true, [&](int64_t number, int64_t begin, int64_t end) {
                    before.carried = nullptr;
                    spread.each_block_back(begin, end, [&](int64_t row, int64_t rows) {
                        const Place grad_z = p.up.weight ? Place{own_z, Z} : Place{p.grad_z + row * p.outputs, p.outputs};
                        if (p.output.weight) {
                            const Kept here = kept(row);
                            after(row, rows, here.x, z(row, here), grad_z);
                            carries.with(number, [&](float* carry) {
                                recurrence.backward(row, rows, z(row, here), here.x, after.grad_x, grad_z, carry);
                            });
                        } else {
                            for (int64_t r = 0; r < rows; ++r)
                                std::memcpy(own_z + r * Z, p.grad_z + (row + r) * p.outputs, p.outputs * sizeof(float));
                        }
                        if (p.up.weight) before(row, rows, own_z, p.output.weight ? p.grad_y + row * p.width : nullptr);
                    });
                    if (!before.carried) return;
                    senders.data[number] = begin;
                    std::memcpy(sent.data + number * D, before.carried, D * sizeof(float));
                });
            });
        });
        with(0, [&](auto& before, auto&, float*) {
            for (int64_t number = 0; p.up.weight && number < runs; ++number)
                if (senders.data[number]) before.send(senders.data[number] - 1, sent.data + number * D);
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
