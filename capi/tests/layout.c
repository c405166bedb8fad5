/* Compares the offset of each COLUMN(name) of `columns.inc` with the one that the library reports. */
#include <stdio.h>
#include <string.h>

#include "lockstep.h"

static const size_t SIZES[] = {1, 4, 8, 4, 8};

static int wrong(size_t number, const char *name, size_t offset, size_t element) {
    ls_column column;
    if (ls_column_at(number, &column) != LS_STATUS_OK) return 1;
    return strcmp(column.name, name) != 0 || column.offset != offset || SIZES[column.element] != element;
}

int main(void) {
    size_t number = 0;
    ls_column column;
#define COLUMN(name) \
    if (wrong(number++, #name, offsetof(ls_rollouts, name), sizeof *((ls_rollouts *)0)->name.data)) { \
        printf("%s\n", #name); \
        return 1; \
    }
#include "columns.inc"
    if (ls_column_at(number, &column) != LS_STATUS_ABSENT) return 1;
    /* The last column ends the struct. */
    if (ls_column_at(number - 1, &column) != LS_STATUS_OK || column.offset + sizeof(ls_span_f32) != sizeof(ls_rollouts)) return 1;
    printf("%d columns\n", (int)number);
    return 0;
}
