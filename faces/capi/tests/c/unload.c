/* Switches the probe of a shared object that was opened and closed: unload.c OBJECT */
#include <dlfcn.h>
#include <handover.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    size_t sites_count = 0;
    void *object = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!object || dlclose(object) != 0)
        return 2;
    handover_status status = handover_probe_enable("plugin.*", &sites_count);
    printf("%s: %zu site\n", handover_strerror(status), sites_count);
    return 0;
}
