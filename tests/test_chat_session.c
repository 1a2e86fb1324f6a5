// Tests files of sessions that hold something else than what quern wrote: each is refused in words of its own, or taken with a
// note, and the dialogue that was kept goes on.
#include "tests/batch_rig.h"

TestSuite(chat_session, .init = rig_open, .fini = rig_close, .timeout = 60);

#define OURS "{\"format\": \"quern-session\", \"version\": 1"
#define TOLD(rest)                                                                                                           \
    OURS                                                                                                                     \
        ", \"messages\": [{\"role\": \"user\", \"content\": \"one\"}, {\"role\": \"assistant\", \"content\": \"two\"}]" rest \
        "}"
static const struct {
    const char *text;
    int status;
    const char *flags, *says;
} files[] = {
    {"{", 2, "", "s.json: line 1, column 2: a key in quotes expected, but the text ends"},
    {"[]", 2, "", "s.json: not a session of quern: there is no \"format\": \"quern-session\""},
    {"{\"format\": 5}", 2, "", "s.json: not a session of quern: there is no \"format\": \"quern-session\""},
    {"{\"format\": \"other\"}", 2, "", "s.json: not a session of quern: there is no \"format\": \"quern-session\""},
    {"{\"format\": \"quern-session\"}", 2, "", "s.json: not a session of quern: it has no version"},
    {"{\"format\": \"quern-session\", \"version\": \"1\"}", 2, "", "s.json: not a session of quern: it has no version"},
    {"{\"format\": \"quern-session\", \"version\": 0}", 2, "", "s.json: not a session of quern: it has no version"},
    {"{\"format\": \"quern-session\", \"version\": 99}", 2, "", "s.json: a session of version 99, this quern knows 1"},
    {OURS "}", 2, "", "s.json: not a session of quern: it has no messages"},
    {OURS ", \"messages\": {}}", 2, "", "s.json: not a session of quern: it has no messages"},
    {OURS ", \"messages\": [5]}", 2, "", "s.json: not a session of quern: a message without content"},
    {OURS ", \"messages\": [{\"role\": \"user\", \"content\": 5}]}", 2, "",
     "s.json: not a session of quern: a message without content"},
    {OURS ", \"messages\": [{\"role\": \"tool\", \"content\": \"x\"}]}", 2, "",
     "s.json: not a session of quern: a message with a role that is neither user nor assistant"},
    {OURS ", \"messages\": [{\"content\": \"x\"}]}", 2, "",
     "s.json: not a session of quern: a message with a role that is neither user nor assistant"},
    {OURS ", \"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"system\", \"content\": \"x\"}]}", 2,
     "", "s.json: not a session of quern: a message with a role that is neither user nor assistant"},
    {TOLD(", \"settings\": {\"temp\": 5}"), 2, "", "s.json: not a session of quern: a setting that is no text"},
    {TOLD(", \"settings\": {\"temp\": [\"1\", 5]}"), 2, "",
     "s.json: not a session of quern: a setting that is no text"},
    {TOLD(", \"settings\": {\"temp\": \"1\\u0000\"}"), 2, "",
     "s.json: not a session of quern: a setting that is no text"},
    {TOLD(", \"settings\": {\"temp\": \"hot\"}"), 2, "", "--temp"},
    {TOLD(", \"settings\": {\"temp\": \"hot\"}"), 0, "--temp 0", "[2 messages from ./s.json go on"},
    {TOLD(", \"settings\": {\"temp\": [\"0\"], \"nonsense\\u001b[31m\": \"1\"}"), 0, "",
     "note: the session sets nonsense"},
    {TOLD(", \"settings\": []"), 2, "", "s.json: not a session of quern: its settings are no object"},
    {TOLD(", \"settings\": null"), 2, "", "s.json: not a session of quern: its settings are no object"},
    {TOLD(", \"settings\": {}"), 0, "", "[2 messages from ./s.json go on"},
    {TOLD(", \"notes\": \"mine\""), 0, "", "note: the session has \"notes\", which this quern does not know"},
    {OURS
     ", \"messages\": [{\"role\": \"user\", \"content\": \"one\"}, {\"role\": \"assistant\", \"content\": \"two\", "
     "\"tool\\u001bs\": []}]}",
     0, "", "which this quern does not know and does not keep"},
    {TOLD(", \"model\": \"elsewhere\""), 0, "", "note: the session was kept with elsewhere, and goes on with m.gguf"},
    {OURS
     ", \"messages\": [{\"role\": \"system\", \"content\": \"be brief\"}, {\"role\": \"user\", \"content\": \"one\"}, "
     "{\"role\": \"assistant\", \"content\": \"two\", \"reasoning_content\": \"a thought\"}]}",
     0, "", "[2 messages from ./s.json go on"},
};

Test(chat_session, files_that_are_no_sessions_are_refused)
{
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        write_text("s.json", files[i].text);
        const int status = shell("$Q chat -n 1 --session ./s.json %s </dev/null", files[i].flags);
        char *err = read_text("err");
        cr_expect_eq(status, files[i].status, "%s: %d, %s", files[i].text, status, err);
        cr_expect(strstr(err, files[i].says), "%s: %s", files[i].text, err);
        cr_expect(!strchr(err, '\033'), "%s", err);
        cr_expect(!strstr(err, "kept with ,"), "%s", err);
        free(err);
    }
}

// What was read is written again with all that belongs to it.
Test(chat_session, a_session_is_written_as_it_was_read)
{
    write_text("s.json",
               OURS ", \"model\": \"m.gguf\", \"settings\": {\"temp\": \"0\", \"stop\": [\"x\", \"y\"]}, "
                    "\"messages\": [{\"role\": \"system\", \"content\": \"be brief\"}, "
                    "{\"role\": \"user\", \"content\": \"one\"}, {\"role\": \"assistant\", \"content\": \"two\", "
                    "\"reasoning_content\": \"a thought\"}]}");
    cr_assert_eq(shell("printf '/save ./again.json\\n' | $Q chat --session ./s.json >said"), 0, "%s", read_text("err"));
    char *again = read_text("again.json");
    static const char *const parts[] = {
        "\"role\": \"system\"", "be brief", "a thought", "\"temp\": \"0\"", "\"x\"", "\"y\"", "\"two\""};
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        cr_expect(strstr(again, parts[i]), "no %s in %s", parts[i], again);
    free(again);
}

Test(chat_session, what_is_no_file_or_too_large_is_no_session)
{
    cr_assert_eq(mkdir("folder", 0700), 0);
    cr_expect_eq(shell("$Q chat --session ./folder </dev/null"), 2);
    expect_says("err", "./folder: is there already and no ordinary file, so it is not replaced");
    cr_expect_eq(shell("printf '/load ./folder\\n/load ./missing\\n' | $Q chat >said"), 1);
    expect_says("err", "./folder: not a session of quern: no regular file of less than 256 MiB");
    expect_says("err", "./missing: No such file or directory");
    write_text("large", "x");
    cr_assert_eq(truncate("large", (256 << 20) + 1), 0);
    cr_expect_eq(shell("$Q chat --session ./large </dev/null"), 2);
    expect_says("err", "./large: not a session of quern: no regular file of less than 256 MiB");
}

// A name without a slash is that of a file below the user's folder for such things.
Test(chat_session, a_name_without_a_place_says_so)
{
    cr_expect_eq(shell("env -u HOME -u XDG_STATE_HOME $Q chat --session mine </dev/null"), 5);
    expect_says("err", "mine: no place to keep it below $XDG_STATE_HOME or $HOME\n");
    write_text("plain", "");
    cr_expect_eq(shell("XDG_STATE_HOME=$PWD/plain $Q chat --session mine </dev/null"), 5);
    expect_says("err", "mine: no place to keep it below $XDG_STATE_HOME or $HOME: Not a directory");
    cr_expect_eq(shell("XDG_STATE_HOME=$PWD $Q chat --session $(printf %%201d 1 | tr ' ' x) </dev/null"), 2);
    expect_says("err", "the name of a session has at most 200 bytes");
    cr_expect_eq(shell("echo a | XDG_STATE_HOME=$PWD $Q chat -n 1 --session $(printf %%200d 1 | tr ' ' x) >said"), 0);
}

Test(chat_session, no_name_and_a_dash_are_no_sessions)
{
    static const char *const names[] = {"", "-"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        cr_expect_eq(shell("XDG_STATE_HOME=$PWD $Q chat --session '%s' </dev/null", names[i]), 2);
        expect_says("err", "is no session; a name or a path is wanted");
    }
    cr_expect_eq(shell("printf '/save -\n/load -\n/save\n/load\n' | XDG_STATE_HOME=$PWD $Q chat"), 1);
    expect_says("err", "\"-\" is no session; a name or a path is wanted");
    expect_says("err", "a name is needed: /save NAME, /load NAME");
    cr_expect_eq(shell("[ ! -e quern/sessions ] && [ ! -e ./- ]"), 0);
}

// A damaged cache beside it costs time, and is told.
Test(chat_session, a_damaged_cache_is_told_and_computed_anew)
{
    cr_assert_eq(shell("echo hello | $Q chat --session ./s.json --cache -n 2 --temp 0 -v >said"), 0, "%s",
                 read_text("err"));
    cr_assert_eq(shell("$Q chat --session ./s.json --cache -n 2 --temp 0 -v </dev/null >said"), 0);
    expect_says("err", "cache: ");
    cr_assert_eq(shell("printf x | dd of=s.json.kv bs=1 seek=40 conv=notrunc 2>/dev/null"), 0);
    cr_assert_eq(shell("$Q chat --session ./s.json --cache -n 2 --temp 0 </dev/null >said"), 0);
    expect_says("err", "warning: ./s.json.kv: ");
    expect_says("err", "; the dialogue is computed anew");
}

static unsigned mode_of(const char *path)
{
    struct stat st;
    cr_assert_eq(stat(path, &st), 0, "%s is not there", path);
    return st.st_mode & 07777;
}

// A dialogue is private until its owner says otherwise; then it stays as the owner wants it.
Test(chat_session, a_session_keeps_its_permissions_and_a_new_one_is_for_its_owner)
{
    static const unsigned modes[] = {0664, 0640, 0600};
    cr_assert_eq(shell("umask 0; echo hello | $Q chat -n 1 --session ./s.json >said"), 0);
    cr_expect_eq(mode_of("s.json"), 0600u, "%o", mode_of("s.json"));
    cr_assert_eq(symlink("s.json", "soft.json"), 0);
    for (size_t i = 0; i < COUNT_OF(modes); i++)
        for (int linked = 0; linked < 2; linked++) {
            cr_assert_eq(chmod("s.json", (mode_t)modes[i]), 0);
            cr_assert_eq(shell("umask 077; echo hello | $Q chat -n 1 --session ./%s.json >said", linked ? "soft" : "s"),
                         0);
            cr_expect_eq(mode_of("s.json"), modes[i], "%o and not %o", mode_of("s.json"), modes[i]);
        }
    cr_assert_eq(chmod("s.json", 0664), 0);
    cr_assert_eq(shell("printf '/save ./s.json\n/save ./soft.json\n' | $Q chat >said"), 0);
    cr_expect_eq(mode_of("s.json"), 0664u);
    cr_expect_eq(shell("[ -h soft.json ]"), 0);
}

// Says a line, lets `between` happen when its answer is kept, and says another one.
static int chat_around(const char *between)
{
    return shell("rm -f talk marker.json; mkfifo talk; "
                 "$Q chat --session ./s.json -n 1 --temp 0 <talk >said 2>log & first=$!; exec 3>talk; "
                 "echo first >&3; echo '/save ./marker.json' >&3; "
                 "for i in $(seq 1200); do [ -e marker.json ] && break; sleep 0.05; done; "
                 "%s; echo second >&3; echo '/save ./elsewhere.json' >&3; exec 3>&-; wait $first",
                 between);
}

// Lets something happen when the chat has said this of its session, and then says a line.
static int chat_after(const char *what, const char *said)
{
    return shell("mkfifo talk; $Q chat --session ./s.json -n 1 -v <talk >said 2>log & first=$!; exec 3>talk; "
                 "for i in $(seq 1200); do grep -q '%s' log && break; sleep 0.05; done; "
                 "%s; echo second >&3; exec 3>&-; wait $first",
                 said, what);
}

Test(chat_session, what_somebody_else_writes_into_it_is_not_replaced)
{
    static const char *const changes[] = {
        "echo ' ' >>s.json",
        "cp s.json new; mv new s.json",
        "sed -i s/first/other/ s.json",
        "touch -d '2001-02-03' s.json",
    };
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        char command[200];
        snprintf(command, sizeof command, "%s; cp s.json before", changes[i]);
        cr_assert_eq(shell("rm -f talk s.json elsewhere.json"), 0);
        cr_expect_eq(chat_around(command), 5, "%s: %s", changes[i], read_text("log"));
        expect_says("log",
                    "warning: the session is not kept: ./s.json: was changed by somebody else since this chat had "
                    "read or written it, and is not replaced; /save NAME keeps this dialogue elsewhere");
        cr_expect(same_files("s.json", "before"), "%s", changes[i]);
        expect_says("elsewhere.json", "second");
    }
    // one that was there at the beginning, and one that was not
    cr_assert_eq(shell("rm talk"), 0);
    cr_expect_eq(chat_after("echo ' ' >>s.json", "messages from ./s.json go on"), 5, "%s", read_text("log"));
    cr_assert_eq(shell("rm talk s.json"), 0);
    cr_expect_eq(chat_after("echo mine >s.json", "a new dialogue"), 5, "%s", read_text("log"));
    expect_says("log", "./s.json: was made by somebody else since this chat began");
    expect_says("s.json", "mine");
}

Test(chat_session, one_that_has_vanished_is_written_again)
{
    cr_expect_eq(chat_around("rm s.json"), 0, "%s", read_text("log"));
    expect_says("s.json", "first");
    expect_says("s.json", "second");
    cr_assert_eq(shell("rm talk elsewhere.json"), 0);
    cr_expect_eq(chat_around("echo /load ./s.json >&3"), 0, "%s", read_text("log"));
}
