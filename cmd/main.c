#include "cmd/verbs.h"

int main(int argc, char **argv)
{
    return verb_main(argc, argv);
}
