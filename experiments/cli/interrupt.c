#include "experiments/cli/interrupt.h"

#include <stddef.h>

#include "sim/base/output.h"
#include "sim/check/call_watch.h"

static volatile sig_atomic_t is_caught, is_interrupted;

static void on_signal(int signal_number) {
    if (is_caught && !is_interrupted) {
        is_interrupted = 1;
        return;
    }
    output_abandon();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

void interrupt_start(void) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct sigaction before, action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
        sigemptyset(&action.sa_mask);
        sigaction(signals[i], NULL, &before);
        if (before.sa_handler != SIG_IGN || signals[i] != SIGHUP) { /* nohup */
            sigaction(signals[i], &action, NULL);
        }
    }
}

const volatile sig_atomic_t *interrupt_catch(void) {
    interrupt_start();
    is_caught = 1;
    call_watch_interrupt(&is_interrupted);
    return &is_interrupted;
}

bool interrupt_is_caught(void) {
    return is_interrupted != 0;
}

void interrupt_now(void) {
    is_interrupted = 1;
}
