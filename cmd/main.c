// The entry of the program; verbs.c finds the verb, parses its options and runs it.
#include "cmd/verbs.h"

int main(int argc, char **argv)
{
    return verb_main(argc, argv);
}
