/* A value of a type out of the members that are named. */
#ifndef UNMASK_TESTS_SUPPORT_MAKE_H
#define UNMASK_TESTS_SUPPORT_MAKE_H

#define MAKE(type, ...) ((type){__VA_ARGS__})

#endif
