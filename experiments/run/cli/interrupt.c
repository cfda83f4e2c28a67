#include "experiments/run/cli/interrupt.h"

#include <stddef.h>
#include <unistd.h>

#include "sim/base/output.h"
#include "sim/base/wait.h"
#include "sim/policy/plugin/call_watch.h"

static volatile sig_atomic_t is_caught, is_interrupted, first_signal;
static volatile uint64_t n_waits; /* as of the signal, or of the last look since */

static void end_by(int signal_number) {
    output_abandon();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* Who is asked to end looks at it between two calls. A second later one that has been waiting all
 * the time will not look. */
static void on_alarm(int signal_number) {
    static const char said[] = "unmask: interrupted: what was waited for does not answer\n";
    (void)signal_number;
    if (wait_is_on(n_waits)) {
        ssize_t written = write(STDERR_FILENO, said, sizeof said - 1);
        (void)written;
        end_by(first_signal);
    }
    n_waits = wait_count();
    alarm(1);
}

static void on_signal(int signal_number) {
    if (is_caught && !is_interrupted) {
        is_interrupted = 1;
        first_signal = signal_number;
        n_waits = wait_count();
        alarm(1);
        return;
    }
    end_by(signal_number);
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
    struct sigaction late = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    interrupt_start();
    sigemptyset(&late.sa_mask);
    sigaction(SIGALRM, &late, NULL);
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
