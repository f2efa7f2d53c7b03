// layer_fuzz [COUNT [SEED [INDEX]]]: runs the kernels of a layer, of head and loss, and of a matrix times vectors on
// COUNT random cases, or only on case INDEX, and compares every number they write with layer_definition.h.
// LATCHWORK_ISA in the environment chooses the instruction set.
#include "cases.h"
#include "layer_definition.h"

namespace {

using definition::Numbers;

template <class Structure>
void run(int (*kernel)(const Structure*), const Structure* p) {
    if (const int code = kernel(p)) fail("the kernel returned %d", code);
}
// To be called last: afterwards the outputs hold nothing.
template <class Structure>
void starve(Random& random, int (*kernel)(const Structure*), const Structure* p) {
    if (random.percent(10) && !says_when_out_of_memory(random, kernel, p))
        fail("the kernel does not say that there is no memory");
}

// A tensor in a heap block of exactly its size, so that the address sanitizer sees one element too far.
using Block = std::vector<float>;

Block draw(Random& random, int64_t size, double scale = 1) {
    Block block(size);
    for (float& each : block) each = static_cast<float>((2 * random.uniform() - 1) * scale);
    return block;
}
Block unwritten(int64_t size) { return Block(size, NAN); }
Numbers widen(const Block& block) { return Numbers(block.begin(), block.end()); }
float* pointer(Block& block) { return block.empty() ? nullptr : block.data(); }  // as torch has it

void check_unchanged(const std::vector<Block>& before, std::initializer_list<const Block*> after) {
    for (size_t i = 0; i < before.size(); ++i) {
        const size_t size = before[i].size() * sizeof(float);
        if (size && std::memcmp(before[i].data(), after.begin()[i]->data(), size))  // bit for bit: there may be NaN
            fail("the kernel wrote to its input %zu", i);
    }
}

double worst = 0;  // of all errors, in units of what is allowed; for whoever sets the tolerance

// To rounding, relative to the largest number of the tensor if that is more than 1, which is the size of what the sums
// are made of; a NaN where the definition has one.
void compare(const char* name, const Block& got, const Numbers& wanted, double tolerance) {
    if (got.size() != wanted.size()) fail("%s has %zu numbers, must have %zu", name, got.size(), wanted.size());
    double largest = 1;
    for (double each : wanted) largest = std::isfinite(each) ? std::max(largest, std::fabs(each)) : largest;
    for (size_t i = 0; i < got.size(); ++i) {
        if (std::isnan(wanted[i]) ? std::isnan(got[i]) : got[i] == wanted[i]) continue;
        const double error = std::fabs(got[i] - wanted[i]) / (tolerance * largest);
        if (!(error <= 1)) fail("%s[%zu] is %.9g, must be %.9g (largest %g)", name, i, got[i], wanted[i], largest);
        worst = std::max(worst, error);
    }
}

// The four blocks of a norm or a linear map. Gradients of weights come zeroed, as ops/cpu/layer.py gives them.
struct Learnt {
    Block weight, bias, grad_weight, grad_bias;
    Learnt(Random& random, int64_t outputs, int64_t inputs, bool has_bias)
        : weight(draw(random, outputs * inputs, std::sqrt(3.0 / static_cast<double>(inputs)))),
          bias(draw(random, has_bias ? outputs : 0)), grad_weight(weight.size(), 0), grad_bias(bias.size(), 0) {}
    definition::Linear linear(int64_t outputs, int64_t inputs) const {
        return {outputs, inputs, widen(weight), widen(bias), Numbers(weight.size()), Numbers(bias.size())};
    }
    definition::Norm norm(int64_t kind, double epsilon) const {
        return {kind, epsilon, widen(weight), widen(bias), Numbers(weight.size()), Numbers(bias.size())};
    }
    Linear pointers() { return {pointer(weight), pointer(bias), pointer(grad_weight), pointer(grad_bias)}; }
    Norm pointers(int64_t kind, double epsilon) {
        return {kind, epsilon, pointer(weight), pointer(bias), pointer(grad_weight), pointer(grad_bias)};
    }
    template <class Definition>
    void check(const char* name, const Definition& wanted, double tolerance) const {
        char full[50];
        std::snprintf(full, sizeof full, "the weight's gradient of %s", name);
        compare(full, grad_weight, wanted.grad_weight, tolerance);
        std::snprintf(full, sizeof full, "the bias's gradient of %s", name);
        compare(full, grad_bias, wanted.grad_bias, tolerance);
    }
};

// Rows so that they cross blocks of 48 and 96, and that there are enough for a second and a third thread; most are few.
int64_t draw_rows(Random& random, int64_t for_a_thread) {
    const int64_t lot = random.below(100);
    if (lot < 60) return random.below(25);
    if (lot < 75) return random.pick({42, 90}) + random.below(12);
    if (lot < 85) return 186 + random.below(12);
    if (lot == 99) return 3000 + random.below(4000);  // many blocks, which threads take in turn
    return random.pick({2, 2, 3}) * for_a_thread + random.below(100) - 2;
}
int64_t draw_width(Random& random) {
    if (random.percent(50)) return 1 + random.below(40);
    return random.pick({1, 2, 3, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 32, 33});
}
void set_nan(Random& random, Block& block) {
    if (!block.empty() && random.percent(5)) block[random.below(static_cast<int64_t>(block.size()))] = NAN;
}

constexpr double LAYER_TOLERANCE = 1e-4, RESPONSE_TOLERANCE = 2e-5, HEAD_TOLERANCE = 1e-4, MATVEC_TOLERANCE = 2e-5;

// The whole layer in one call is its two parts, one after the other: forward bit for bit. p: of the first part; z and tape:
// what it gave.
void check_whole(Random& random, const Layer& drive, Block& z, std::initializer_list<Learnt*> learnt, const Block& tape) {
    Layer first = drive, second{}, whole = drive;
    const int64_t N = drive.batch * drive.time, d = drive.width, B = drive.batch, S = drive.state;
    Learnt output(random, d, S, true);
    Block x0 = draw(random, S), start = draw(random, random.percent(50) ? B * S : 0), grad_y = draw(random, N * d);
    Block grad_x_last = draw(random, B * S), grad_v_last = draw(random, random.percent(50) ? B * d : 0);
    std::vector<int64_t> last(random.percent(50) ? B : 0);
    for (int64_t& each : last) each = drive.time ? random.below(drive.time) : 0;
    second.batch = B, second.time = drive.time, second.width = d, second.outputs = drive.outputs, second.state = S;
    second.threads = drive.threads, second.gated_output = drive.gated_output, second.u = drive.u;
    second.reset = drive.reset;
    Block y[2], x_last[2], v_last[2], grad_u[2], grad_x0[2], grad_start[2], grad_output[2], tapes[2];
    Block grad_z = unwritten(N * drive.outputs);
    std::vector<Block> grads[2];
    Layer* calls[] = {&second, &whole};
    for (int i = 0; i < 2; ++i) {
        y[i] = grad_u[i] = unwritten(N * d), x_last[i] = unwritten(B * S), v_last[i] = unwritten(B * d);
        grad_x0[i] = grad_start[i] = Block(B * S, 0);
        Layer& p = *calls[i];
        p.output = output.pointers(), p.start = pointer(start), p.x0 = pointer(x0);
        p.last = last.empty() ? nullptr : last.data();
        p.y = pointer(y[i]), p.x_last = pointer(x_last[i]), p.z = i ? nullptr : pointer(z);
        if (i) p.v_last = pointer(v_last[i]);
        tapes[i] = unwritten(N * latchwork_layer_tape(&p));
        p.tape = pointer(tapes[i]);
        run(latchwork_layer_forward, &p);
        p.grad_y = pointer(grad_y), p.grad_x_last = pointer(grad_x_last), p.grad_v_last = nullptr;
        p.grad_start = pointer(grad_start[i]), p.grad_x0 = pointer(grad_x0[i]), p.grad_z = i ? nullptr : pointer(grad_z);
        if (i) p.grad_u = pointer(grad_u[i]), p.grad_v_last = pointer(grad_v_last);
        run(latchwork_layer_backward, &p);
        grad_output[i] = output.grad_weight;
        if (!i) {
            first.last = p.last, first.tape = const_cast<float*>(tape.data()), first.grad_z = pointer(grad_z);
            first.grad_u = pointer(grad_u[0]), first.grad_v_last = pointer(grad_v_last);
            run(latchwork_layer_backward, &first);
            for (size_t k = 0; k < grad_u[0].size(); ++k) grad_u[0][k] += grad_y[k];
        }
        for (Learnt* each : learnt) grads[i].push_back(each->grad_weight), grads[i].push_back(each->grad_bias);
    }
    const auto same = [](const Block& a, const Block& b) {
        return a.empty() || !std::memcmp(a.data(), b.data(), a.size() * sizeof(float));
    };
    if (!same(y[0], y[1]) || !same(x_last[0], x_last[1])) fail("the whole layer is not its two parts");
    compare("the gradient of u, whole", grad_u[1], widen(grad_u[0]), LAYER_TOLERANCE);
    compare("the gradient of the output, whole", grad_output[1], widen(grad_output[0]), LAYER_TOLERANCE);
    compare("the gradient of x0, whole", grad_x0[1], widen(grad_x0[0]), LAYER_TOLERANCE);
    compare("the gradient of the start, whole", grad_start[1], widen(grad_start[0]), LAYER_TOLERANCE);
    for (size_t k = 0; k < grads[0].size(); ++k)
        compare("the gradient of a weight, whole", grads[1][k], widen(grads[0][k]), LAYER_TOLERANCE);
}

// False if some relu's input is so near to 0 that rounding may change its gradient: then another case is drawn.
bool try_layer(Random& random, const char* number) {
    Layer p{};
    const bool wide = random.percent(1);  // so many weights that blocks are larger, and rows are copied
    const int64_t rows = wide ? 97 + random.below(60) : draw_rows(random, 192);
    p.time = rows == 0 ? random.pick({0, 1, 5}) : random.percent(60) ? rows : 1 + random.below(rows);
    p.batch = p.time ? rows / p.time : random.below(3);
    const int64_t d = p.width = draw_width(random) + wide * 150;
    p.hidden = draw_width(random) + wide * 900, p.outputs = draw_width(random), p.threads = 1 + random.below(4);
    const int64_t parts = random.pick({0, 2, 3});  // of z, if the whole layer is run too
    if (parts) p.outputs *= parts;
    p.gated_conv = random.percent(50), p.gated_ffn = random.percent(50), p.activation = wide ? SWISH : random.below(3);
    p.seed = random.below(INT64_MAX);
    p.dropout = random.percent(40) ? random.pick({1, 10, 50, 90}) / 100.0 : 0;
    const int64_t N = p.batch * p.time, ups = p.hidden * (1 + p.gated_ffn), kind = random.below(3);
    const double epsilon = random.percent(50) ? 0.05 : 0.5;  // no smaller: then narrow norms have no exact digits
    const int64_t resets = random.pick({-1, -1, 0, 5, 30, 100});  // percent of the steps; -1: reset is null
    const bool has_first = random.percent(50), wants_first = has_first && random.percent(80);
    std::snprintf(now, sizeof now,
                  "%s: layer B %ld T %ld width %ld hidden %ld outputs %ld threads %ld gated conv %ld gated ffn %ld "
                  "activation %ld dropout %g norm %ld resets %ld%% first %d",
                  number, long(p.batch), long(p.time), long(d), long(p.hidden), long(p.outputs), long(p.threads),
                  long(p.gated_conv), long(p.gated_ffn), long(p.activation), p.dropout, long(kind), long(resets),
                  has_first);

    const int64_t scales = kind == NO_NORM ? 0 : d;
    Learnt norms[] = {{random, scales, 1, kind == LAYER_NORM}, {random, scales, 1, kind == LAYER_NORM},
                      {random, scales, 1, kind == LAYER_NORM}};
    Learnt conv = p.gated_conv ? Learnt(random, d, 1, false) : Learnt(random, d, 2 * d, true);
    Learnt up(random, ups, d, true), down(random, d, p.hidden, true), projection(random, p.outputs, d, true);
    Block u = draw(random, N * d, 2), first = draw(random, has_first ? p.batch * d : 0);
    Block grad_z = draw(random, N * p.outputs);
    set_nan(random, u), set_nan(random, first);
    std::vector<uint8_t> reset(resets < 0 ? 0 : N);
    for (uint8_t& each : reset) each = random.percent(resets);

    definition::LayerRows wanted{
        p.batch, p.time, d, p.hidden, p.outputs, bool(p.gated_conv), bool(p.gated_ffn), p.activation,
        static_cast<uint64_t>(p.seed), p.dropout, norms[0].norm(kind, epsilon), norms[1].norm(kind, epsilon),
        norms[2].norm(kind, epsilon), conv.linear(d, p.gated_conv ? 1 : 2 * d), up.linear(ups, d),
        down.linear(d, p.hidden), projection.linear(p.outputs, d), widen(u), widen(first), reset,
        {}, widen(grad_z), {}, {}, {}, {}, {}, {}, {}, {}};
    wanted.forward();
    if (p.activation == RELU && wanted.nearest_kink < 1e-5) return false;
    wanted.backward();

    p.norm_conv = norms[0].pointers(kind, epsilon), p.norm_ffn = norms[1].pointers(kind, epsilon);
    p.norm_neuron = norms[2].pointers(kind, epsilon);
    p.conv = conv.pointers(), p.up = up.pointers(), p.down = down.pointers(), p.projection = projection.pointers();
    p.u = pointer(u), p.first = pointer(first), p.reset = reset.empty() ? nullptr : reset.data();
    const std::vector<Block> inputs{u, first, grad_z, conv.weight, up.weight, down.weight, projection.weight};
    Block z = unwritten(N * p.outputs), again = z, tape = unwritten(N * latchwork_layer_tape(&p));
    p.z = pointer(again);
    run(latchwork_layer_forward, &p);  // without a gradient: there is no tape
    p.z = pointer(z), p.tape = pointer(tape);
    run(latchwork_layer_forward, &p);
    if (!z.empty() && std::memcmp(z.data(), again.data(), z.size() * sizeof(float))) fail("the tape changes z");
    compare("z", z, wanted.z, LAYER_TOLERANCE);

    Block grad_u = unwritten(N * d), grad_first(wants_first ? p.batch * d : 0, 0);
    p.z = nullptr, p.grad_z = pointer(grad_z), p.grad_u = pointer(grad_u), p.grad_first = pointer(grad_first);
    run(latchwork_layer_backward, &p);
    compare("the gradient of u", grad_u, wanted.grad_u, LAYER_TOLERANCE);
    if (wants_first) compare("the gradient of first", grad_first, wanted.grad_first, LAYER_TOLERANCE);
    conv.check("conv", wanted.conv, LAYER_TOLERANCE), up.check("up", wanted.up, LAYER_TOLERANCE);
    down.check("down", wanted.down, LAYER_TOLERANCE);
    projection.check("projection", wanted.projection, LAYER_TOLERANCE);
    norms[0].check("norm_conv", wanted.norm_conv, LAYER_TOLERANCE);
    norms[1].check("norm_ffn", wanted.norm_ffn, LAYER_TOLERANCE);
    norms[2].check("norm_neuron", wanted.norm_neuron, LAYER_TOLERANCE);
    check_unchanged(inputs, {&u, &first, &grad_z, &conv.weight, &up.weight, &down.weight, &projection.weight});
    if (parts) {
        p.state = p.outputs / parts, p.gated_output = parts == 3, p.grad_first = nullptr;
        check_whole(random, p, z, {&conv, &up, &down, &projection, &norms[0], &norms[1], &norms[2]}, tape);
    }
    starve(random, latchwork_layer_backward, &p);
    p.z = pointer(z);
    starve(random, latchwork_layer_forward, &p);
    return true;
}

// What follows the projections, for z that is given: against the definition.
void try_response(Random& random, const char* number) {
    Layer p{};
    const int64_t rows = draw_rows(random, 192);
    p.time = rows == 0 ? random.pick({0, 1, 5}) : random.percent(60) ? rows : 1 + random.below(rows);
    p.batch = p.time ? rows / p.time : random.below(3);
    const int64_t N = p.batch * p.time;
    p.width = draw_width(random), p.state = draw_width(random), p.threads = 1 + random.below(4);
    p.gated_output = random.percent(70), p.outputs = (p.gated_output ? 3 : 2) * p.state;
    const int64_t resets = random.pick({-1, -1, 0, 5, 30, 100});
    const bool has_start = random.percent(50), has_last = random.percent(50), tied = random.percent(30);
    std::snprintf(now, sizeof now,
                  "%s: response B %ld T %ld width %ld state %ld threads %ld gated %ld resets %ld%% start %d last %d",
                  number, long(p.batch), long(p.time), long(p.width), long(p.state), long(p.threads),
                  long(p.gated_output), long(resets), has_start, has_last);
    Learnt output(random, p.width, p.state, true);
    Block z = draw(random, N * p.outputs, tied ? 3 : 10), u = draw(random, N * p.width), grad_y = draw(random, N * p.width);
    Block x0 = draw(random, p.state), start = draw(random, has_start ? p.batch * p.state : 0);
    Block grad_last = draw(random, random.percent(70) ? p.batch * p.state : 0);
    for (float& each : z)
        if (tied) each = std::round(each);
    for (int64_t i = 0; i < N * p.outputs; ++i)  // of the gates: the ends of the sigmoid
        if (i % p.outputs >= 2 * p.state && random.percent(5))
            z[i] = static_cast<float>(random.pick({0, -87, 87, -88, 88, -100, 100, -10000, 10000}));
    std::vector<uint8_t> reset(resets < 0 ? 0 : N);
    for (uint8_t& each : reset) each = random.percent(resets);
    std::vector<int64_t> last(has_last ? p.batch : 0);
    for (int64_t& each : last) each = p.time ? random.below(p.time) : 0;
    p.output = output.pointers(), p.u = pointer(u), p.z = pointer(z), p.start = pointer(start), p.x0 = pointer(x0);
    p.reset = reset.empty() ? nullptr : reset.data(), p.last = last.empty() ? nullptr : last.data();

    definition::States states{p, z, start, x0, {}, {}, {}, {}, {}};
    states.forward();
    definition::ResponseRows wanted{N, p.width, p.state, p.outputs, bool(p.gated_output), widen(states.x), widen(z),
                                    widen(u), output.linear(p.width, p.state), {}, widen(grad_y), {}, {}};
    wanted.forward();
    wanted.backward();
    Numbers x_last;
    for (int64_t b = 0; b < p.batch; ++b)
        for (int64_t j = 0; j < p.state; ++j) {
            const int64_t at = (b * p.time + (has_last ? last[b] : p.time - 1)) * p.state + j;
            x_last.push_back(p.time ? states.x[at] : has_start ? start[b * p.state + j] : x0[j]);
            if (p.time && !grad_last.empty()) wanted.grad_x[at] += grad_last[b * p.state + j];
        }
    states.backward(wanted.grad_x);

    const std::vector<Block> inputs{z, u, grad_y, output.weight, start, x0};
    Block y = unwritten(u.size()), again = y, after = unwritten(p.batch * p.state), tape = unwritten(N * latchwork_layer_tape(&p));
    p.y = pointer(again), p.x_last = pointer(after);
    run(latchwork_layer_forward, &p);  // without a gradient: there is no tape
    p.y = pointer(y), p.tape = pointer(tape);
    run(latchwork_layer_forward, &p);
    if (!y.empty() && std::memcmp(y.data(), again.data(), y.size() * sizeof(float))) fail("the tape changes y");
    compare("y", y, wanted.y, RESPONSE_TOLERANCE);
    compare("the last state", after, x_last, 0);
    Block grad_z = unwritten(z.size()), grad_start(p.batch * p.state, 0), grad_x0 = grad_start;
    p.grad_y = pointer(grad_y), p.grad_z = pointer(grad_z), p.grad_x_last = pointer(grad_last);
    p.grad_start = pointer(grad_start), p.grad_x0 = pointer(grad_x0);
    run(latchwork_layer_backward, &p);
    Numbers wanted_z;
    for (int64_t row = 0; row < N; ++row)
        for (int64_t part = 0; part < p.outputs / p.state; ++part) {
            const Numbers& from = part == 0 ? states.grad_r : part == 1 ? states.grad_s : wanted.grad_gate;
            wanted_z.insert(wanted_z.end(), from.begin() + row * p.state, from.begin() + (row + 1) * p.state);
        }
    compare("the gradient of z", grad_z, wanted_z, RESPONSE_TOLERANCE);
    compare("the gradient of the start", grad_start, states.grad_start, RESPONSE_TOLERANCE);
    compare("the gradient of x0", grad_x0, states.grad_x0, RESPONSE_TOLERANCE);
    output.check("output", wanted.output, RESPONSE_TOLERANCE);
    check_unchanged(inputs, {&z, &u, &grad_y, &output.weight, &start, &x0});
    starve(random, latchwork_layer_backward, &p), starve(random, latchwork_layer_forward, &p);
}

void try_head(Random& random, const char* number) {
    Head p{};
    p.rows = draw_rows(random, 192), p.width = draw_width(random), p.threads = 1 + random.below(4);
    p.classes = draw_width(random) + (random.percent(20) ? 60 : 0), p.share = 1 / (1.0 + random.below(20));
    const bool wants_x = random.percent(80), wants_weight = random.percent(80);
    std::snprintf(now, sizeof now, "%s: head rows %ld width %ld classes %ld threads %ld gradients %d %d", number,
                  long(p.rows), long(p.width), long(p.classes), long(p.threads), wants_x, wants_weight);
    Block x = draw(random, p.rows * p.width, random.percent(10) ? 100 : 2), weight = draw(random, p.classes * p.width);
    set_nan(random, x);
    std::vector<int64_t> targets(p.rows);
    for (int64_t& each : targets)
        each = random.percent(20) ? random.pick({-1, -100, p.classes, INT64_MIN, INT64_MAX}) : random.below(p.classes);
    definition::HeadRows wanted{p.rows, p.width, p.classes, p.share, widen(x), widen(weight), targets, {}, {}, {}};
    wanted.run();

    const std::vector<Block> inputs{x, weight};
    Block losses = unwritten(p.rows), grad_x = unwritten(wants_x ? x.size() : 0), grad_weight(weight.size(), 0);
    p.x = pointer(x), p.weight = pointer(weight), p.targets = targets.data(), p.losses = pointer(losses);
    p.grad_x = pointer(grad_x), p.grad_weight = wants_weight ? pointer(grad_weight) : nullptr;
    run(latchwork_head, &p);
    compare("the loss", losses, wanted.losses, HEAD_TOLERANCE);
    if (wants_x) compare("the gradient of x", grad_x, wanted.grad_x, HEAD_TOLERANCE);
    if (wants_weight) compare("the gradient of the weight", grad_weight, wanted.grad_weight, HEAD_TOLERANCE);
    check_unchanged(inputs, {&x, &weight});
    starve(random, latchwork_head, &p);
}

void try_best(Random& random, const char* number) {
    Best p{};
    p.rows = draw_rows(random, 192), p.width = draw_width(random), p.threads = 1 + random.below(4);
    p.classes = draw_width(random) + (random.percent(20) ? 60 : 0);
    const int64_t kind = random.below(3), scales = kind == NO_NORM ? 0 : p.width;
    std::snprintf(now, sizeof now, "%s: best rows %ld width %ld classes %ld threads %ld norm %ld", number, long(p.rows),
                  long(p.width), long(p.classes), long(p.threads), long(kind));
    Learnt norm(random, scales, 1, kind == LAYER_NORM);
    Block x = draw(random, p.rows * p.width, 2), weight = draw(random, p.classes * p.width);
    set_nan(random, x), set_nan(random, weight);
    const definition::Norm wanted = norm.norm(kind, 0.05);
    const definition::Linear head{p.classes, p.width, widen(weight), Numbers(p.classes), {}, {}};
    const std::vector<Block> inputs{x, weight};
    std::vector<int64_t> best(p.rows, -2);
    p.norm = norm.pointers(kind, 0.05), p.x = pointer(x), p.weight = pointer(weight), p.best = best.data();
    run(latchwork_best, &p);
    for (int64_t row = 0; row < p.rows; ++row) {
        const Numbers logits = head.forward(wanted.forward(definition::row_of(widen(x), row, p.width)));
        bool wrong = false;
        double most = logits[0];
        for (double each : logits) wrong |= std::isnan(each), most = std::max(most, each);
        if (wrong ? best[row] != -1 : best[row] < 0 || best[row] >= p.classes || logits[best[row]] < most - 1e-3)
            fail("the best of row %ld is %ld", long(row), long(best[row]));
    }
    check_unchanged(inputs, {&x, &weight});
    starve(random, latchwork_best, &p);
}

void try_matvec(Random& random, const char* number) {
    Matvec p{};
    const bool large = random.percent(5);  // enough for several threads
    p.vectors = 1 + random.below(5), p.outputs = 1 + random.below(40) + large * 250;
    p.inputs = 1 + random.below(80) + large * 250;
    p.row = p.inputs + random.pick({0, 0, 1, 7, 80}), p.threads = 1 + random.below(4);
    p.quantised = random.percent(50);
    const bool has_bias = random.percent(50);
    std::snprintf(now, sizeof now,
                  "%s: matvec vectors %ld outputs %ld inputs %ld row %ld threads %ld quantised %ld bias %d", number,
                  long(p.vectors), long(p.outputs), long(p.inputs), long(p.row), long(p.threads), long(p.quantised),
                  has_bias);
    const int64_t size = (p.outputs - 1) * p.row + p.inputs;  // the block ends with the last weight
    Block weight = draw(random, p.quantised ? 0 : size), scale = draw(random, p.quantised ? p.outputs : 0);
    Block bias = draw(random, has_bias ? p.outputs : 0), x = draw(random, p.vectors * p.inputs);
    std::vector<int8_t> whole(p.quantised ? size : 0);
    for (int8_t& each : whole) each = static_cast<int8_t>(random.below(256) - 128);
    for (int64_t i = 0; i < static_cast<int64_t>(weight.size()); ++i)
        if (i % p.row >= p.inputs) weight[i] = NAN;  // between rows, not to be used
    set_nan(random, x);

    Numbers wanted;
    for (int64_t v = 0; v < p.vectors; ++v)
        for (int64_t i = 0; i < p.outputs; ++i) {
            double sum = 0;
            for (int64_t k = 0; k < p.inputs; ++k) {
                const double factor = p.quantised ? whole[i * p.row + k] : weight[i * p.row + k];
                sum += factor * x[v * p.inputs + k];
            }
            wanted.push_back((p.quantised ? sum * scale[i] : sum) + (has_bias ? bias[i] : 0));
        }
    const std::vector<Block> inputs{x, weight, scale, bias};
    Block y = unwritten(p.vectors * p.outputs);
    p.weight = p.quantised ? static_cast<const void*>(whole.data()) : weight.data();
    p.scale = pointer(scale), p.bias = pointer(bias), p.x = pointer(x), p.y = pointer(y);
    run(latchwork_matvec, &p);
    compare("y", y, wanted, MATVEC_TOLERANCE);
    check_unchanged(inputs, {&x, &weight, &scale, &bias});
    starve(random, latchwork_matvec, &p);
}

}  // namespace

int main(int count, char** arguments) {
    const int result = run_cases(count, arguments, 2000, [](Random& random, int64_t index, int64_t seed) {
        char number[100];
        std::snprintf(number, sizeof number, "%ld of seed %ld, %s", long(index), long(seed), latchwork_isa());
        while (!try_layer(random, number)) continue;
        try_response(random, number);
        try_head(random, number);
        try_best(random, number);
        try_matvec(random, number);
    });
    std::printf("the largest error is %.2g of what is allowed\n", worst);
    return result;
}
