# Completion of dlock for fish 3.4 or newer.

# Reads the words up to the cursor as dlock does: where the first operand stands, 0 if nowhere, and
# then the options that lead to the server.
function __dlock_read
    set -l words (commandline -opc)
    set -l at 0
    set -l lead
    set -l leads (__dlock_leads)
    set -l valued (__dlock_valued $words[2])
    set -l letters (string match -rg '^-([^-])$' -- $valued | string join '')
    test -n "$letters"; or set letters -
    set -l i 3
    while test $i -le (count $words)
        set -l word $words[$i]
        if test "$word" = --
            set at (math $i + 1)
            break
        else if string match -qr '^(-$|[^-]|$)' -- $word
            if test $at = 0
                set at $i
            end
            if contains -- $words[2] run guard
                break
            end
        else if string match -q -- '--*=*' $word
            contains -- (string replace -r '=.*' '' -- $word) $leads; and set -a lead $word
        else if contains -- $word $leads
            set i (math $i + 1)
            set -q words[$i]; and set -a lead $word=(string replace -r '^~/' "$HOME/" -- $words[$i])
        else if contains -- $word $valued; or string match -qr -- "^-[^-$letters]*[$letters]\$" $word
            set i (math $i + 1)
        end
        set i (math $i + 1)
    end
    string join \n -- $at $lead
end

# Whether options of one of these commands can stand at the cursor; without any: of whichever.
function __dlock_options_of
    set -l words (commandline -opc)
    set -q words[2]; or return
    test (count $argv) -eq 0; or contains -- $words[2] $argv; or return
    contains -- $words[2] run guard; or return 0
    set -l read (__dlock_read)
    test $read[1] = 0
end

function __dlock_at_command
    test (count (commandline -opc)) -eq 1
end

# Where the name of a command stands: first, or behind help.
function __dlock_at_command_name
    set -l words (commandline -opc)
    test (count $words) -eq 1; or test "$words[2..]" = help
end

function __dlock_at_verb
    set -l words (commandline -opc)
    test "$words[2]" = latch; or return
    set -l read (__dlock_read)
    test $read[1] = 0
end

# Whether COMMAND or one of its arguments stands at the cursor.
function __dlock_at_foreign
    set -l words (commandline -opc)
    contains -- "$words[2]" run guard; or return
    set -l read (__dlock_read)
    test $read[1] -gt 0; or not string match -q -- '-*' (commandline -ct)
end

function __dlock_foreign
    set -l words (commandline -opc)
    set -l read (__dlock_read)
    set -l line
    if test $read[1] -gt 0
        set line (string escape -- $words[$read[1]..])
    end
    complete -C (string join ' ' -- $line (commandline -ct))
end

# The keys on the server that the words of the line lead to. Those with control characters are left
# out, for fish reads what is offered by line and up to a tab.
function __dlock_keys
    set -l words (commandline -opc)
    # What inspect shows of a key is a lock, or after latch a latch.
    set -l wanted '^(?!.*,"holders":\[\],"waiters":\[\],"latch":\{)'
    test "$words[2]" = inspect; and set wanted ''
    test "$words[2]" = latch; and set wanted '^(?=.*,"latch":\{)'
    set -l read (__dlock_read)
    set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
    set -l urls
    set -l others
    for lead in $read[2..]
        if string match -qr -- '^--server=.' $lead
            set -a urls (string replace -- '--server=' '' $lead | string replace -a ' ' '%20')
        else
            set -a others $lead
        end
    end
    # In the arguments of timeout everybody would see a URL's password.
    set -q urls[1]; and set -lx DLOCK_SERVER "$urls"
    for key in (timeout 0.15 $program inspect --json $others </dev/null 2>/dev/null |
        string match -r -- "$wanted.*" |
        string match -rg '^\{"key":"((?:[^"\\\\]|\\\\(?:["\\\\]|u(?!00)[0-9a-f]{4}))*)","holders":')
        printf '%b\n' $key
    end
end

# An operand that begins with a "-" would be read as an option.
function __dlock_operands
    __dlock_keys | string match -v -- '-*'
end

# Without those that have a number alone for dlock.
function __dlock_signals
    set -l prefix (string match -r '^SIG' -- (commandline -ct | string replace -r '^--signal=' ''))
    for name in (kill -l | string split -n ' ' | string match -r '^[A-Z]+[12]?$')
        contains -- $name IO IOT CLD; or echo "$prefix$name"
    end
end

complete -c dlock -f
complete -c dlock -n __dlock_at_command -a help -d 'print the help of COMMAND'
complete -c dlock -n __dlock_at_command -s h -l help -d 'print this help'
complete -c dlock -n __dlock_at_command -s V -l version -d 'print the version'
complete -c dlock -n __dlock_at_verb -a 'open arrive wait'
complete -c dlock -n __dlock_at_foreign -a '(__dlock_foreign)'

# Begin of what scripts/completions writes from the table of options.
# Those that lead to the server.
function __dlock_leads
    string join \n -- --server --password-file --password-command --tls-ca --tls-cert --tls-key \
        --tls-server-name --sentinel-user --sentinel-password-file --sentinel-tls --prefix --config
end

# The options of a command that take a value.
function __dlock_valued
    switch $argv[1]
        case run
            string join \n -- -k --key -c --command -w --wait --limit -t --ttl -E \
                --conflict-exit-code --grace --signal --max-hold --min-hold --on-lost --status-fd \
                --metrics --hook --replicas --owner --label --compat
        case acquire
            string join \n -- -k --key -w --wait --limit -t --ttl --until --attach --signal --hook \
                --replicas --owner --label --compat
        case renew
            string join \n -- -k --key -t --ttl --token --compat
        case release
            string join \n -- -k --key -w --wait --hook --token --fence --reason --compat
        case inspect
            string join \n -- -k --key --compat
        case latch
            string join \n -- -k --key --count --by -w --wait -t --ttl
        case doctor
            string join \n -- -t --ttl --replicas
        case guard
            string join \n -- --state --state-key -c --command --fence
    end
    __dlock_leads
end

complete -c dlock -n __dlock_at_command_name -a run -d 'hold the lock while COMMAND runs'
complete -c dlock -n __dlock_at_command_name -a acquire -d 'acquire the lock and exit; prints a token'
complete -c dlock -n __dlock_at_command_name -a renew -d 'extend the lease of an acquired lock'
complete -c dlock -n __dlock_at_command_name -a release -d 'release it; stop or evict its holders'
complete -c dlock -n __dlock_at_command_name -a inspect -d 'show holders, waiters and latches'
complete -c dlock -n __dlock_at_command_name -a latch -d 'let a job wait until N others have arrived'
complete -c dlock -n __dlock_at_command_name -a doctor -d 'check whether a server is fit to hold locks'
complete -c dlock -n __dlock_at_command_name -a guard -d 'run COMMAND unless its fencing token is old'
complete -c dlock -n '__dlock_options_of acquire renew release inspect' -a '(__dlock_operands)'
complete -c dlock -n '__dlock_options_of run acquire renew release inspect latch' -s k -l key -x -a \
    '(__dlock_keys)' -d 'name of the lock; may be repeated'
complete -c dlock -n '__dlock_options_of run guard' -s c -l command -x \
    -d 'run STRING with /bin/sh -c'
complete -c dlock -n '__dlock_options_of run acquire latch' -s n -l nonblock -l nb -d 'do not wait'
complete -c dlock -n '__dlock_options_of run acquire latch' -s w -l wait -x \
    -d 'wait at most DUR (default: for ever)'
complete -c dlock -n '__dlock_options_of run acquire' -l latest \
    -d 'wait until a newer --latest waits, then exit 75'
complete -c dlock -n '__dlock_options_of run acquire' -l preempt \
    -d 'ask the present holders to stop, and wait'
complete -c dlock -n '__dlock_options_of run acquire' -s s -l shared \
    -d 'share the lock with all other -s (read lock)'
complete -c dlock -n '__dlock_options_of run acquire' -s x -l exclusive -s e \
    -d 'hold it exclusively (default)'
complete -c dlock -n '__dlock_options_of run acquire' -l limit -x \
    -d 'let at most N holders in at once'
complete -c dlock -n '__dlock_options_of run' -s t -l ttl -x \
    -d 'lease: freed this long after dlock dies (30s)'
complete -c dlock -n '__dlock_options_of run' -s E -l conflict-exit-code -x \
    -d 'exit with N, not 75, if not acquired in time'
complete -c dlock -n '__dlock_options_of run' -l grace -x \
    -d 'time from SIGTERM to SIGKILL, at most ttl/3'
complete -c dlock -n '__dlock_options_of run' -l signal -x -a '(__dlock_signals)' \
    -d 'send SIG, not SIGTERM: INT, SIGINT or 2'
complete -c dlock -n '__dlock_options_of run' -l max-hold -x \
    -d 'stop COMMAND after DUR and exit 124'
complete -c dlock -n '__dlock_options_of run' -l min-hold -x \
    -d 'keep the key taken for DUR at least (cron)'
complete -c dlock -n '__dlock_options_of run' -l wait-tree \
    -d 'hold until all descendants of COMMAND exit'
complete -c dlock -n '__dlock_options_of run' -l on-lost -x -a 'stop ignore' \
    -d 'stop COMMAND (default), or ignore the loss'
complete -c dlock -n '__dlock_options_of run' -l watchdog \
    -d 'a second process stops COMMAND if dlock cannot'
complete -c dlock -n '__dlock_options_of run' -l status-fd -x \
    -d 'write the outcome to descriptor N, as JSON'
complete -c dlock -n '__dlock_options_of run' -l metrics -r \
    -d 'write the outcome to FILE, for Prometheus'
complete -c dlock -n '__dlock_options_of run acquire release' -l hook -x \
    -d 'call CMD by sh -c on each event of the lock'
complete -c dlock -n '__dlock_options_of run acquire doctor' -l replicas -x \
    -d 'count a lock only when N replicas have it'
complete -c dlock -n '__dlock_options_of run acquire' -l owner -x \
    -d 'act as ID: all runs with ID share the lock'
complete -c dlock -n '__dlock_options_of run acquire' -l label -x \
    -d 'shown to others, e.g. a build URL'
complete -c dlock -n '__dlock_options_of run acquire renew release inspect' -l compat -x -a \
    'redis-py redlock node-redlock redlock-universal redsync redislock redlock-py redlock-rb \
    aioredlock rslock distributedlock stackexchange phpredis pottery redlocknet redis-semaphore \
    laravel: shedlock spring: python-redis-lock redisson redisson-fenced symfony' \
    -d 'share the locks of a library, e.g. redisson'
complete -c dlock -n '__dlock_options_of run renew release latch guard' -s q -d 'print only errors'
complete -c dlock -n '__dlock_options_of acquire' -s t -l ttl -x \
    -d 'lease: expires after DUR unless renewed'
complete -c dlock -n '__dlock_options_of acquire' -l until -x \
    -d 'expires at 17:00 or 2026-11-29T17:00[Z|+01:00]'
complete -c dlock -n '__dlock_options_of acquire' -l attach -x -a '(__fish_complete_pids)' \
    -d 'renew until PID ends, then release (-t 30s)'
complete -c dlock -n '__dlock_options_of acquire' -l signal -x -a '(__dlock_signals)' \
    -d 'send SIG to PID at loss, not SIGTERM'
complete -c dlock -n '__dlock_options_of acquire renew release inspect latch doctor' -l json \
    -d 'print JSON'
complete -c dlock -n '__dlock_options_of acquire' -l env \
    -d 'print DLOCK_TOKEN=..., DLOCK_FENCE=, DLOCK_OWNER='
complete -c dlock -n '__dlock_options_of acquire' -s q -d 'print only errors, and no token'
complete -c dlock -n '__dlock_options_of renew' -s t -l ttl -x \
    -d 'new lease, from now on (default: as acquired)'
complete -c dlock -n '__dlock_options_of renew release' -l token -x \
    -d 'the token that acquire printed'
complete -c dlock -n '__dlock_options_of release' -s w -l wait -x \
    -d 'with --stop: wait until those holders have gone'
complete -c dlock -n '__dlock_options_of release' -l stop \
    -d 'ask the holders to stop; needs no token'
complete -c dlock -n '__dlock_options_of release' -l force -d 'evict all holders; needs no token'
complete -c dlock -n '__dlock_options_of release' -l yes \
    -d 'act on all keys of a PATTERN without a question'
complete -c dlock -n '__dlock_options_of release' -l fence -x \
    -d 'only the holder with this fencing token'
complete -c dlock -n '__dlock_options_of release' -l reason -x \
    -d 'tell the holders of --stop or --force why'
complete -c dlock -n '__dlock_options_of inspect' -l metrics -d 'print metrics for Prometheus'
complete -c dlock -n '__dlock_options_of inspect' -l watch -d 'follow changes until ^C'
complete -c dlock -n '__dlock_options_of inspect' -l free \
    -d 'list free keys, too, with their last holders'
complete -c dlock -n '__dlock_options_of inspect' -l all-kinds \
    -d 'list locks of other libraries, too'
complete -c dlock -n '__dlock_options_of inspect' -s q -d 'print nothing; exit 0 if held, 1 if free'
complete -c dlock -n '__dlock_options_of latch' -l count -x \
    -d 'open: how many have to arrive, 1 to 1000000'
complete -c dlock -n '__dlock_options_of latch' -l by -x \
    -d 'arrive: as ID, which counts once (default: new)'
complete -c dlock -n '__dlock_options_of latch' -s t -l ttl -x \
    -d 'open: delete the latch after DUR (default: 1d)'
complete -c dlock -n '__dlock_options_of doctor' -s t -l ttl -x \
    -d 'judge for locks with this lease (default: 30s)'
complete -c dlock -n '__dlock_options_of doctor' -l acl \
    -d 'print the least rights that dlock\'s user needs'
complete -c dlock -n '__dlock_options_of doctor' -l schema \
    -d 'create the table for locks in a database'
complete -c dlock -n '__dlock_options_of doctor' -s q -d 'print nothing; the exit code tells'
complete -c dlock -n '__dlock_options_of guard' -l state -r \
    -d 'record the largest fencing token in FILE'
complete -c dlock -n '__dlock_options_of guard' -l state-key -x \
    -d 'record it as NAME where the locks are'
complete -c dlock -n '__dlock_options_of guard' -l fence -x \
    -d 'fencing token of the holder (DLOCK_FENCE)'
complete -c dlock -n __dlock_options_of -l server -x -a 'local: redis:// rediss:// unix:// \
    redis+sentinel:// rediss+sentinel:// redis+cluster:// rediss+cluster:// postgres:// \
    postgresql:// mysql:// mariadb:// etcd:// etcds:// zk:// k8s:// s3:// memcached://' \
    -d 'local:[/DIR], redis[s]://HOST, unix:///SOCKET, ...'
complete -c dlock -n __dlock_options_of -l password-file -r -d 'read the server\'s password from F'
complete -c dlock -n __dlock_options_of -l password-command -x \
    -d 'take it from CMD, by /bin/sh, for each login'
complete -c dlock -n __dlock_options_of -l tls-ca -r -d 'authorities to trust for TLS'
complete -c dlock -n __dlock_options_of -l tls-cert -r -d 'certificate to show to the server'
complete -c dlock -n __dlock_options_of -l tls-key -r -d 'private key of the certificate'
complete -c dlock -n __dlock_options_of -l tls-server-name -x \
    -d 'name that the server\'s certificate must have'
complete -c dlock -n __dlock_options_of -l sentinel-user -x -d 'user at the sentinels'
complete -c dlock -n __dlock_options_of -l sentinel-password-file -r \
    -d 'read the sentinels\' password from F'
complete -c dlock -n __dlock_options_of -l sentinel-tls -x -a 'on off' \
    -d 'TLS to the sentinels (default: as in the URL)'
complete -c dlock -n __dlock_options_of -l prefix -x -d 'what the keys begin with on the server'
complete -c dlock -n __dlock_options_of -l config -r -d 'read only this configuration file'
complete -c dlock -n __dlock_options_of -s v -l verbose -d 'explain each step'
complete -c dlock -n __dlock_options_of -s h -l help -d 'print this help'
complete -c dlock -n __dlock_options_of -s V -l version -d 'print the version'
# End of what scripts/completions writes.
