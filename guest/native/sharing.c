/*
 * lambswool_sharing: what keeps the memory that forks and clones share unwritten, and so shared.
 *
 * A fork copies each page that it writes to, which takes one to two microseconds and four kilobytes; a machine that is put
 * back after a call copies it twice. Python writes to nearly all that it only reads: whoever looks at an object counts a
 * reference in it. And it puts what is new into the holes between what is old. Neither is needed in a process that never
 * frees what it has imported; `sharing.py` says when this is called.
 *
 * These functions know what CPython and glibc do inside, and the caller which versions do it so.
 */
#define _DEFAULT_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "python.h"

/*
 * PEP 683 (3.12 and later): an object whose count has its low 32 bits set is immortal. It is neither counted nor freed. What
 * an extension for an earlier stable ABI counts in it, it takes back as well, so the bits are set again.
 */
static PyObject *immortalize(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *objects;
    if (!PyArg_ParseTuple(arguments, "O", &objects)) return NULL;
    for (ptrdiff_t i = PyList_Size(objects) - 1; i >= 0; i--) {
        uint32_t *count = (uint32_t *)PyList_GetItem(objects, i);
        if (!count) return NULL;
        if ((int32_t)*count >= 0) *count = UINT32_MAX;
    }
    return none();
}

/* Objects/obmalloc.c: blocks of one size, in steps of 16 bytes, come from pools of 16 KiB, each of which begins with the number
 * of its blocks that are taken. */
enum { STEP = 16, LARGEST = 512, POOL = 16 << 10 };

static int is_alone(const void *block) {
    return *(const uint32_t *)((uintptr_t)block / POOL * POOL) == 1;
}

/* Takes the blocks that are free in pools which hold others, for good; what is allocated next is alone in its pages. */
static PyObject *fill_pools(PyObject *self, PyObject *arguments) {
    (void)self;
    long most, taken = 0;
    if (!PyArg_ParseTuple(arguments, "l", &most)) return NULL;
    for (size_t size = STEP; size <= LARGEST; size += STEP)
        while (taken < most) {
            void *block = PyObject_Malloc(size);
            if (!block) break;
            if (is_alone(block)) {
                PyObject_Free(block); /* with its pool */
                break;
            }
            taken += (long)size;
        }
    return PyLong_FromLong(taken);
}

/* glibc's malloc: a chunk begins with 8 bytes of its own, comes in steps of 16, and is cut from `top`, above all that was ever
 * taken, where no hole is large enough. Chunks of more than 1 KiB join their neighbours as soon as they are free. */
enum { CHUNK_STEP = 16, CHUNK_HEADER = 8, JOINS = 1 << 10, LARGEST_CHUNK = 64 << 10 };

/* Takes the holes in the heap, the largest first; what is allocated next lies above them, in pages of its own. */
static PyObject *fill_heap(PyObject *self, PyObject *arguments) {
    (void)self;
    long most, taken = 0;
    if (!PyArg_ParseTuple(arguments, "l", &most)) return NULL;
#ifdef __GLIBC__
    malloc_trim(0);
    /* mallinfo2 is of glibc 2.33; this field of it needs no more bits: what `top` has beyond a page was given back just now. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    uintptr_t top = (uintptr_t)sbrk(0) - (uintptr_t)mallinfo().keepcost;
#pragma GCC diagnostic pop
    for (size_t size = LARGEST_CHUNK; size > CHUNK_STEP; size = size > JOINS ? size / 2 : size - CHUNK_STEP)
        while (taken < most) {
            void *chunk = malloc(size - CHUNK_HEADER);
            if (!chunk) break;
            if ((uintptr_t)chunk >= top) {
                free(chunk);
                break;
            }
            taken += (long)size;
        }
#endif
    return PyLong_FromLong(taken);
}

static PyMethodDef methods[] = {
    {"immortalize", immortalize, METH_VARARGS,
     "immortalize(list): none of these objects counts references from here on. CPython 3.12 and 3.13 with the lock only."},
    {"fill_pools", fill_pools, METH_VARARGS,
     "fill_pools(most) -> bytes taken, for good: at most so many of those that are free beside objects."},
    {"fill_heap", fill_heap, METH_VARARGS,
     "fill_heap(most) -> bytes taken, for good: the same of what the C library has free. 0 where that is not glibc."},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef definition = {
    .base = {.head = {.refcount = 1}}, .name = "lambswool_sharing", .doc = "Keeps shared memory unwritten.", .size = -1, .methods = methods};

__attribute__((visibility("default"))) PyObject *PyInit_lambswool_sharing(void) {
    return PyModule_Create2(&definition, STABLE_ABI);
}
