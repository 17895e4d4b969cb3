/*
 * Python's C API, as much of it as our extensions use: the stable ABI only (3.11 and later), declared by hand, so that one
 * shared object serves every Python and no Python headers are needed to build it.
 */
#ifndef LAMBSWOOL_PYTHON_H
#define LAMBSWOOL_PYTHON_H

#include <stddef.h>

typedef struct _object PyObject;
typedef struct { ptrdiff_t refcount; void *type; } PyObjectHead;
typedef PyObject *(*PyCFunction)(PyObject *, PyObject *);
typedef struct { const char *name; PyCFunction function; int flags; const char *doc; } PyMethodDef;
typedef struct {
    struct { PyObjectHead head; PyObject *(*init)(void); ptrdiff_t index; PyObject *copy; } base;
    const char *name, *doc;
    ptrdiff_t size;
    PyMethodDef *methods;
    void *slots, *traverse, *clear, *free;
} PyModuleDef;
enum { METH_VARARGS = 1, STABLE_ABI = 3 };
extern PyObject *PyExc_OSError;
extern PyObject _Py_NoneStruct;
extern PyObject *PyModule_Create2(PyModuleDef *, int);
extern int PyArg_ParseTuple(PyObject *, const char *, ...);
extern PyObject *PyErr_SetFromErrno(PyObject *);
extern int PyErr_CheckSignals(void);
extern PyObject *PyBytes_FromStringAndSize(const char *, ptrdiff_t);
extern int PyBytes_AsStringAndSize(PyObject *, char **, ptrdiff_t *);
extern PyObject *PyLong_FromLong(long);
extern ptrdiff_t PyList_Size(PyObject *);
extern PyObject *PyList_GetItem(PyObject *, ptrdiff_t);
extern void *PyObject_Malloc(size_t);
extern void PyObject_Free(void *);
extern void Py_IncRef(PyObject *);
extern void *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void *);
extern void PyOS_BeforeFork(void);
extern void PyOS_AfterFork_Parent(void);
extern void PyOS_AfterFork_Child(void);

static inline PyObject *none(void) {
    Py_IncRef(&_Py_NoneStruct);
    return &_Py_NoneStruct;
}

#endif
