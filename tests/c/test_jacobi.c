/* The tournament behind Jacobi's method. */
#include "lower/jacobi.h"
#include "test.h"

enum { MOST = 40 };

/* Plays a sweep and counts how often each two rows meet. */
static void play(const Seats *seats, int64_t rows[MOST], int meetings[MOST][MOST]) {
  for (int64_t round = 0; round < seats->rounds; round++) {
    int64_t next[MOST];
    for (int64_t i = 0; i < seats->count; i++) {
      next[i] = rows[seats->from[i]];
      meetings[next[i]][rows[seats->rival[i]]]++;
    }
    for (int64_t i = 0; i < seats->count; i++) {
      CHECK(next[seats->place[i]] == rows[seats->rival[i]]);
      CHECK(seats->place[seats->place[i]] == i);
    }
    memcpy(rows, next, sizeof next);
  }
}

static void each_row_meets_each_other_once_in_a_sweep(void) {
  Context context;
  context_init(&context);
  Lowering l = {.context = &context};
  for (int64_t count = 1; count <= MOST; count++) {
    Seats seats = seats_for(&l, count);
    int64_t rows[MOST] = {0};
    int meetings[MOST][MOST] = {{0}};
    for (int64_t i = 0; i < count; i++) rows[i] = i;
    play(&seats, rows, meetings);
    for (int64_t i = 0; i < count; i++) {
      /* With an odd number of rows each is once without a rival, and alone it always is. */
      CHECK(meetings[i][i] == (count % 2 ? 1 : 0));
      for (int64_t j = 0; j < count; j++) CHECK(i == j || meetings[i][j] == 1);
    }
  }
  context_release(&context);
}

const Test jacobi_tests[] = {
    {"each_row_meets_each_other_once_in_a_sweep", each_row_meets_each_other_once_in_a_sweep},
    {0},
};
