// A finite machine given by tables, run over one sequence. See automata/walk.py, which has the same loop in Python.
#include <cstdint>

// tokens: steps of them, each less than symbols. next, outputs: (states, symbols); a next below 0 is not known yet.
// Writes an answer for each step done, leaves the state reached in *state, and returns the number of steps done.
extern "C" __attribute__((visibility("default"))) int64_t latchwork_walk(const int32_t* next, const int32_t* outputs,
                                                                         int64_t symbols, const int64_t* tokens,
                                                                         int64_t steps, int64_t* state,
                                                                         int32_t* answers) {
    int64_t here = *state;
    int64_t step = 0;
    for (; step < steps; ++step) {
        const int64_t place = here * symbols + tokens[step];
        if (next[place] < 0) break;
        answers[step] = outputs[place];
        here = next[place];
    }
    *state = here;
    return step;
}
