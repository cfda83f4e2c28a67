#include "experiments/cli/interrupt.h"

static volatile sig_atomic_t is_interrupted;

static void on_signal(int signal_number) {
    (void)signal_number;
    is_interrupted = 1;
}

const volatile sig_atomic_t *interrupt_catch(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &is_interrupted;
}
