/* Arena. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bytes.h"
#include "base/context.h"

struct ArenaBlock {
  ArenaBlock *older;
  size_t size;
  size_t mapped; /* bytes to unmap, or 0 when the block is from the heap */
};

enum {
  BLOCK_SIZE = 64 * 1024,
  MOST_OF_HEAP = 1024 * 1024, /* the system clears large pages whole: a small conversion does without */
  ALIGNMENT = 16,
  LARGEST_BLOCK = 4 * LARGE_PAGE,
  STRIDE = 8 * 1024
};

/* Touching 4 KiB at a time is a good part of what a large conversion costs. */
void *large_pages(size_t size) {
  size_t whole = size + LARGE_PAGE;
  char *start = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return NULL;
  size_t before = (size_t)(-(uintptr_t)start & (LARGE_PAGE - 1)), after = LARGE_PAGE - before;
  if (before) munmap(start, before);
  if (after) munmap(start + before + size, after);
#ifdef MADV_HUGEPAGE
  madvise(start + before, size, MADV_HUGEPAGE);
#endif
  return start + before;
}

void large_pages_free(void *start, size_t size) { munmap(start, size); }

static void add_block(Arena *arena, size_t size) {
  interruption_point(arena->context);
  size_t header = (sizeof(ArenaBlock) + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
  if (size > SIZE_MAX / 2) fail(arena->context, ERROR_MEMORY, "size");
  /* The message is not made here: it would need memory. */
  bool is_beyond = arena->limit && (arena->total > arena->limit || size > arena->limit - arena->total);
  if (is_beyond) fail_text(arena->context, ERROR_MEMORY, arena->beyond);
  size_t whole = header + size;
  bool large = whole >= LARGE_PAGE;
  if (large) whole = (whole + LARGE_PAGE - 1) & ~(size_t)(LARGE_PAGE - 1);
  ArenaBlock *block = large ? large_pages(whole) : malloc(whole);
  if (!block) fail(arena->context, ERROR_MEMORY, "block");
  block->mapped = large ? whole : 0;
  block->older = arena->blocks;
  block->size = whole - header;
  arena->blocks = block;
  arena->next = (char *)block + header;
  arena->left = block->size;
  arena->zeroed = large ? block->size : 0;
  arena->total += whole;
}

/* The heap's memory is cleared a stretch at a time, just before it is used: most of the newest block never is. */
static void clear_more(Arena *arena, size_t size) {
  size_t wanted = size + STRIDE < arena->left ? size + STRIDE : arena->left;
  fill_bytes(arena->next + arena->zeroed, 0, wanted - arena->zeroed);
  arena->zeroed = wanted;
}

static void make_room(Arena *arena, size_t size) {
  if (size > arena->left) {
    /* Blocks grow with the conversion, so that their number stays small; large pages come as soon as they are filled
     * for the most part. A large object gets its own size. */
    size_t block = arena->total > BLOCK_SIZE ? arena->total : BLOCK_SIZE;
    if (arena->total > MOST_OF_HEAP) block = arena->total / 4 > LARGE_PAGE ? arena->total / 4 : LARGE_PAGE;
    if (block > LARGEST_BLOCK) block = LARGEST_BLOCK;
    add_block(arena, size > block ? size : block);
  }
  if (size > arena->zeroed) clear_more(arena, size);
}

void *arena_alloc(Arena *arena, size_t size) {
  if (arena->fail_after > 0 && --arena->fail_after == 0) fail(arena->context, ERROR_MEMORY, "test");
  if (size > SIZE_MAX - ALIGNMENT) fail(arena->context, ERROR_MEMORY, "size");
  size = (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
  if (size == 0) size = ALIGNMENT;
  if (size > arena->zeroed) make_room(arena, size);
  void *result = arena->next;
  arena->next += size;
  arena->left -= size;
  arena->zeroed -= size;
  return result;
}

void *arena_alloc_array(Arena *arena, size_t count, size_t size) {
  if (size && count > SIZE_MAX / size) fail(arena->context, ERROR_MEMORY, "array");
  return arena_alloc(arena, count * size);
}

void *arena_copy(Arena *arena, const void *data, size_t size) {
  void *copy = arena_alloc(arena, size);
  copy_bytes(copy, data, size);
  return copy;
}

char *arena_copy_text(Arena *arena, const char *text) { return arena_copy(arena, text, strlen(text) + 1); }

char *arena_format(Arena *arena, const char *format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  if (length < 0) {
    va_end(again);
    fail(arena->context, ERROR_INTERNAL, "bad format: %s", format);
  }
  char *text = arena_alloc(arena, (size_t)length + 1);
  vsnprintf(text, (size_t)length + 1, format, again);
  va_end(again);
  return text;
}

/* What is taken at a time grows with what was taken: a small graph leaves little unused. */
static void fill_pool(Arena *arena, Pool *pool, size_t size) {
  enum { LEAST = 1024, MOST = 64 * 1024 };
  size_t wanted = pool->taken < LEAST ? LEAST : pool->taken > MOST ? MOST : pool->taken;
  if (wanted < size) wanted = size;
  pool->next = arena_alloc(arena, wanted);
  pool->left = wanted;
  pool->taken += wanted;
}

void *pool_alloc(Arena *arena, Pool *pool, size_t size) {
  if (size > SIZE_MAX - 8) fail(arena->context, ERROR_MEMORY, "size");
  size = (size + 7) & ~(size_t)7;
  if (size > pool->left) fill_pool(arena, pool, size);
  void *result = pool->next;
  pool->next += size;
  pool->left -= size;
  return result;
}

void *pool_alloc_array(Arena *arena, Pool *pool, size_t count, size_t size) {
  if (size && count > SIZE_MAX / size) fail(arena->context, ERROR_MEMORY, "array");
  return pool_alloc(arena, pool, count * size);
}

void arena_release(Arena *arena) {
  for (ArenaBlock *block = arena->blocks; block;) {
    ArenaBlock *older = block->older;
    if (block->mapped) large_pages_free(block, block->mapped);
    else free(block);
    block = older;
  }
  arena->blocks = NULL;
  arena->next = NULL;
  arena->left = 0;
  arena->zeroed = 0;
  arena->total = 0;
}
