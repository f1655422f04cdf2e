/* Arena: memory that lives as long as one conversion and is released at once. */
#ifndef J2O_BASE_ARENA_H
#define J2O_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

typedef struct Context Context;
typedef struct ArenaBlock ArenaBlock;

/* Of an arena, for things of one kind: those made one after another lie one after another. */
typedef struct Pool {
  char *next;
  size_t left;
  size_t taken; /* from the arena so far */
} Pool;

typedef struct Arena {
  Context *context;   /* told when memory runs out */
  ArenaBlock *blocks; /* newest first */
  char *next;         /* free space in the newest block */
  size_t left;
  size_t zeroed;      /* of it, from next on */
  size_t total;       /* bytes taken from the system */
  size_t limit;       /* of total, or 0 for none: what is made of a stranger's file */
  const char *beyond; /* what to say then */
  int64_t fail_after; /* tests: when positive, counts down and the allocation that reaches 0 fails */
} Arena;

/* Zeroed, 16-byte aligned. Unwinds with ERROR_MEMORY when there is none. */
void *arena_alloc(Arena *arena, size_t size);
void *arena_alloc_array(Arena *arena, size_t count, size_t size);
void *arena_copy(Arena *arena, const void *data, size_t size);
char *arena_copy_text(Arena *arena, const char *text);
char *arena_format(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void arena_release(Arena *arena);
/* Zeroed, 8-byte aligned. */
void *pool_alloc(Arena *arena, Pool *pool, size_t size);
void *pool_alloc_array(Arena *arena, Pool *pool, size_t count, size_t size);

/* Zeroed memory of its own, a multiple of LARGE_PAGE; NULL when there is none. */
enum { LARGE_PAGE = 2 << 20 };
void *large_pages(size_t size);
void large_pages_free(void *start, size_t size);

#define arena_new(arena, type) ((type *)arena_alloc((arena), sizeof(type)))
#define arena_new_array(arena, count, type) ((type *)arena_alloc_array((arena), (count), sizeof(type)))

#endif
