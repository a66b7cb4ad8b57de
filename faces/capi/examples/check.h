/* Ends an example with the library's message if a function fails. */
#ifndef CHECK_H
#define CHECK_H

#include <handover.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        handover_status status_ = (call);                                                          \
        if (status_ != HANDOVER_OK) {                                                              \
            fprintf(stderr, "%s: %s: %s\n", #call, handover_strerror(status_),                     \
                    handover_last_error());                                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif
