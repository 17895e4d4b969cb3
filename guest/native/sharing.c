/*
 * lambswool_sharing: what keeps the memory that forks and clones share unwritten, and so shared.
 *
 * A fork copies each page that it writes to, which takes one to two microseconds and four kilobytes; a machine that is put
 * back after a call copies it twice. Python writes to nearly all that it only reads: whoever looks at an object counts a
 * reference in it. And it puts what is new into the holes between what is old. Neither is needed in a process that never
 * frees what it has imported; `sharing.py` says when this is called.
 *
 * Both functions know what CPython does inside, and the caller which versions do it so.
 */
#include <stdint.h>

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

static PyMethodDef methods[] = {
    {"immortalize", immortalize, METH_VARARGS,
     "immortalize(list): none of these objects counts references from here on. CPython 3.12 and 3.13 with the lock only."},
    {"fill_pools", fill_pools, METH_VARARGS,
     "fill_pools(most) -> bytes taken, for good: at most so many of those that are free beside objects."},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef definition = {
    .base = {.head = {.refcount = 1}}, .name = "lambswool_sharing", .doc = "Keeps shared memory unwritten.", .size = -1, .methods = methods};

__attribute__((visibility("default"))) PyObject *PyInit_lambswool_sharing(void) {
    return PyModule_Create2(&definition, STABLE_ABI);
}
