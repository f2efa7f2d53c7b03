// Moves of whole levels, and the choice of where to, for one instruction set, as recurrence.cpp.
#include "moves.h"

#include "choice.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

extern "C" {
int JOIN(latchwork_move_, LATCHWORK_ISA)(const Moves* p) { return LATCHWORK_ISA::run_moves_dtype(*p, false); }
int JOIN(latchwork_move_back_, LATCHWORK_ISA)(const Moves* p) { return LATCHWORK_ISA::run_moves_dtype(*p, true); }
int JOIN(latchwork_choose_, LATCHWORK_ISA)(const Choice* p) { return LATCHWORK_ISA::run_choice_dtype(*p, false); }
int JOIN(latchwork_choose_back_, LATCHWORK_ISA)(const Choice* p) { return LATCHWORK_ISA::run_choice_dtype(*p, true); }
}
