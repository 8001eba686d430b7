# Completion of dlock for bash 4.2 or newer, with bash-completion or without it.

# Begin of what scripts/completions writes from the table of options.
_dlock_commands='run acquire renew release inspect latch doctor guard'
# Those that lead to the server.
_dlock_leads='--server --password-file --password-command --tls-ca --tls-cert --tls-key
  --tls-server-name --sentinel-user --sentinel-password-file --sentinel-tls --prefix --config'

# _dlock_options COMMAND: the options of it, those with a value with a "=" behind them,
# in $REPLY.
_dlock_options() {
  case $1 in
    run)
      REPLY='-k= --key= -c= --command= -n --nonblock --nb -w= --wait= --latest --preempt -s --shared
        -x --exclusive -e --limit= -t= --ttl= -E= --conflict-exit-code= --grace= --signal=
        --max-hold= --min-hold= --wait-tree --on-lost= --watchdog --status-fd= --metrics= --hook=
        --replicas= --owner= --label= --compat= -q'
      ;;
    acquire)
      REPLY='-k= --key= -n --nonblock --nb -w= --wait= --latest --preempt -s --shared -x --exclusive
        -e --limit= -t= --ttl= --until= --attach= --signal= --hook= --json --env --replicas=
        --owner= --label= --compat= -q'
      ;;
    renew)
      REPLY='-k= --key= -t= --ttl= --token= --json --compat= -q'
      ;;
    release)
      REPLY='-k= --key= -w= --wait= --hook= --token= --stop --force --yes --fence= --reason= --json
        --compat= -q'
      ;;
    inspect)
      REPLY='-k= --key= --metrics --json --watch --free --compat= --all-kinds -q'
      ;;
    latch)
      REPLY='-k= --key= --count= --by= -n --nonblock --nb -w= --wait= -t= --ttl= --json -q'
      ;;
    doctor)
      REPLY='-t= --ttl= --json --acl --schema --replicas= -q'
      ;;
    guard)
      REPLY='--state= --state-key= -c= --command= --fence= -q'
      ;;
    *)
      REPLY=
      return
      ;;
  esac
  REPLY+=' --server= --password-file= --password-command= --tls-ca= --tls-cert= --tls-key=
    --tls-server-name= --sentinel-user= --sentinel-password-file= --sentinel-tls= --prefix=
    --config= -v --verbose -h --help -V --version'
}

# _dlock_completion OPTION: what completes its value, and with which words, in $REPLY.
_dlock_completion() {
  case $1 in
    -k | --key)
      REPLY='keys'
      ;;
    --signal)
      REPLY='signals'
      ;;
    --on-lost)
      REPLY='words stop ignore'
      ;;
    --metrics | --state | --password-file | --tls-ca | --tls-cert | --tls-key | \
      --sentinel-password-file | --config)
      REPLY='files'
      ;;
    --compat)
      REPLY='words redis-py redlock node-redlock redlock-universal redsync redislock redlock-py
        redlock-rb aioredlock rslock distributedlock stackexchange phpredis pottery redlocknet
        redis-semaphore laravel: shedlock spring: python-redis-lock redisson redisson-fenced symfony'
      ;;
    --attach)
      REPLY='processes'
      ;;
    --server)
      REPLY='beginnings local: redis:// rediss:// unix:// redis+sentinel:// rediss+sentinel://
        redis+cluster:// rediss+cluster:// postgres:// postgresql:// mysql:// mariadb:// etcd://
        etcds:// zk:// k8s:// s3:// memcached://'
      ;;
    --sentinel-tls)
      REPLY='words on off'
      ;;
    *) REPLY= ;;
  esac
}

# _dlock_operands COMMAND: what its operands are, in $REPLY.
_dlock_operands() {
  case $1 in
    run) REPLY=command ;;
    acquire) REPLY=keys ;;
    renew) REPLY=keys ;;
    release) REPLY=patterns ;;
    inspect) REPLY=patterns ;;
    latch) REPLY=verb ;;
    doctor) REPLY=none ;;
    guard) REPLY=command ;;
    *) REPLY= ;;
  esac
}
# End of what scripts/completions writes.

# What a word of the command line means once the shell has read it, in $REPLY. Nothing in it is
# expanded or run, but for ~/ at its beginning.
_dlock_unquoted() {
  local rest=$1 quote='' char
  REPLY=
  if [[ $rest == '~/'* ]]; then REPLY=$HOME rest=${rest:1}; fi
  while [[ -n $rest ]]; do
    char=${rest:0:1} rest=${rest:1}
    case $quote$char in
      \\ | \"\\) REPLY+=${rest:0:1} rest=${rest:1} ;;
      \' | \") quote=$char ;;
      \'\' | \"\") quote= ;;
      *) REPLY+=$char ;;
    esac
  done
}

# Puts together what readline parted at a "=" or ":": the words of the line up to the cursor, in
# `words`, at which index of COMP_WORDS each begins, in `origins`, and how much of the last one
# readline leaves as it is, in `kept`. All three are the caller's.
_dlock_read_words() {
  local line=$COMP_LINE word i last blank='^[[:blank:]]+' parting='^[:=@]+$'
  words=() origins=() kept=''
  for ((i = 0; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    last=$((${#words[@]} - 1))
    if ((i > 0)) && [[ -n $word && ! $line =~ $blank ]] &&
      [[ $word =~ $parting || ${COMP_WORDS[i - 1]} =~ $parting ]]; then
      kept=${words[last]}
      words[last]+=$word
    else
      kept=''
      words+=("$word") origins+=("$i")
    fi
    if [[ $line =~ $blank ]]; then line=${line:${#BASH_REMATCH[0]}}; fi
    line=${line#"$word"}
  done
  if [[ -n $kept && ${COMP_WORDS[COMP_CWORD]} =~ $parting ]]; then kept=${words[${#words[@]} - 1]}; fi
}

# Offers those of the words that begin with $current.
_dlock_offer() {
  local word
  for word; do
    if [[ $word == "$current"* ]]; then COMPREPLY+=("$word"); fi
  done
}

_dlock_offer_files() {
  local file
  compopt -o filenames 2>/dev/null
  while IFS= read -r file; do COMPREPLY+=("$file"); done < <(compgen -f -- "$current")
}

_dlock_offer_signals() {
  local name prefix=''
  [[ $current == SIG* ]] && prefix=SIG
  while IFS= read -r name; do
    # The others have a number alone, or another name, for dlock.
    [[ $name =~ ^SIG[A-Z]+[12]?$ && $name != SIGRT* && $name != SIGIO ]] &&
      _dlock_offer "$prefix${name#SIG}"
  done < <(compgen -A signal)
}

# _dlock_wanted LINE: whether the command is about what inspect shows in LINE, a lock or a latch.
_dlock_wanted() {
  case $command in
    latch) [[ $1 == *',"latch":{'* ]] ;;
    inspect) true ;;
    *) [[ $1 != *',"holders":[],"waiters":[],"latch":{'* ]] ;;
  esac
}

# Offers the keys on the server that the words of the line lead to.
_dlock_offer_keys() {
  local line key start='{"key":"'
  # In the arguments of timeout everybody would see a URL's password.
  if [[ -n $server_urls ]]; then local -x DLOCK_SERVER=$server_urls; fi
  while IFS= read -r line; do
    _dlock_wanted "$line" || continue
    line=${line#"$start"}
    line=${line%%'","holders":'*}
    printf -v key %b "${line//'\"'/'\x22'}"
    # An operand that begins with a "-" would be read as an option.
    [[ $option == operand && -z $ended && $key == -* ]] || _dlock_offer "$key"
  done < <(timeout 0.15 "$program" inspect --json "${server_words[@]}" </dev/null 2>/dev/null)
}

# Words that are text of their own, not names of files, as the line needs them: quoted, and without
# what readline leaves as it is.
_dlock_quote_replies() {
  local i text plain_kept
  _dlock_unquoted "$kept"
  plain_kept=$REPLY
  for i in "${!COMPREPLY[@]}"; do
    text=${COMPREPLY[i]}
    case $opened in
      \') text=${text//\'/\'\\\'\'} ;;
      \")
        # Within these no backslash keeps bash from looking an event up.
        if [[ $text == *'!'* ]]; then unset 'COMPREPLY[i]' && continue; fi
        text=${text//\\/\\\\} text=${text//\"/\\\"} text=${text//\$/\\\$} text=${text//\`/\\\`}
        ;;
      *) printf -v text %q "${text#"$plain_kept"}" ;;
    esac
    COMPREPLY[i]=$text
  done
  COMPREPLY=("${COMPREPLY[@]}")
}

# _dlock_offer_values OPTION
_dlock_offer_values() {
  _dlock_completion "$1"
  case $REPLY in
    keys) _dlock_offer_keys ;;
    signals) _dlock_offer_signals ;;
    words\ *) _dlock_offer ${REPLY#words } ;;
    beginnings\ *)
      compopt -o nospace 2>/dev/null
      _dlock_offer ${REPLY#beginnings }
      ;;
    files)
      _dlock_offer_files
      return
      ;;
  esac
  _dlock_quote_replies
}

# Reads the words of the command up to the cursor, as dlock does: the option whose value stands at
# the cursor, in `option`; the index of the first word of COMMAND, in `command_at`; what leads to
# the server, in `server_words`, but its URLs in `server_urls`; whether a "--" has ended the
# options, in `ended`; how many operands there are already, in `operands`.
_dlock_read_options() {
  local i word value runs=''
  [[ $operand_kind == command ]] && runs=yes
  option='' command_at='' ended='' operands=0 server_words=() server_urls=''
  for ((i = 2; i < ${#words[@]} - 1; i++)); do
    word=${words[i]}
    if [[ $word == -- && -z $ended ]]; then
      ended=yes
      if [[ -n $runs ]]; then command_at=$((i + 1)) && return; fi
    elif [[ -n $ended || $word != -?* ]]; then
      if [[ -n $runs ]]; then command_at=$i && return; fi
      operands=$((operands + 1))
    elif _dlock_takes_value "$word"; then
      if ((i + 1 == ${#words[@]} - 1)); then option=$REPLY && return; fi
      i=$((i + 1))
      _dlock_unquoted "${words[i]}"
      value=$REPLY
      _dlock_lead "$word" "$value"
    elif [[ $word == --*=* ]]; then
      _dlock_unquoted "${word#*=}"
      _dlock_lead "${word%%=*}" "$REPLY"
    fi
  done
  if [[ -n $runs && ${words[i]} != -* ]]; then command_at=$i; fi
  [[ -n $ended || ${words[i]} != -* ]] && option=operand
}

_dlock_lead() {
  if [[ $1 == --server && -n $2 ]]; then
    # As the variable parts them.
    server_urls+=${server_urls:+ }${2// /%20}
  elif [[ " $_dlock_leads " == *[[:space:]]"$1"[[:space:]]* ]]; then
    server_words+=("$1=$2")
  fi
}

# Whether the word behind this one is its value: --wait, -w, -nw; the option itself in $REPLY.
_dlock_takes_value() {
  local word=$1 option i
  case $word in
    --*) [[ " $options " == *" $word= "* ]] && REPLY=$word ;;
    *)
      for ((i = 1; i < ${#word}; i++)); do
        option=-${word:i:1}
        if [[ " $options " == *" $option= "* ]]; then
          REPLY=$option
          ((i + 1 == ${#word}))
          return
        fi
      done
      false
      ;;
  esac
}

# COMMAND and its arguments, as the shell completes them elsewhere.
_dlock_offer_command() {
  local word
  if declare -F _comp_command_offset >/dev/null; then
    _comp_command_offset "${origins[command_at]}"
  elif declare -F _command_offset >/dev/null; then
    _command_offset "${origins[command_at]}"
  elif ((command_at == ${#words[@]} - 1)) && [[ $current != */* ]]; then
    while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -c -- "$current")
  else
    _dlock_offer_files
  fi
}

_dlock() {
  local -a words origins server_words
  local server_urls=''
  local kept option command_at ended operands operand_kind options opened='' current command program
  local REPLY
  COMPREPLY=()
  _dlock_read_words
  current=${words[${#words[@]} - 1]}
  if [[ $current == [\'\"]* ]]; then opened=${current:0:1}; fi
  _dlock_unquoted "$current" && current=$REPLY
  if ((${#words[@]} == 2)); then
    if [[ $current == -* ]]; then
      _dlock_offer -h --help -V --version
    else
      _dlock_offer $_dlock_commands help
    fi
    return
  fi
  command=${words[1]}
  if [[ $command == help ]]; then
    ((${#words[@]} > 3)) || _dlock_offer $_dlock_commands
    return
  fi
  _dlock_options "$command"
  read -rd '' -a options <<<"$REPLY"
  options=${options[*]}
  _dlock_operands "$command" && operand_kind=$REPLY
  _dlock_unquoted "${words[0]}" && program=$REPLY
  _dlock_read_options
  if [[ -n $command_at ]]; then
    _dlock_offer_command
  elif [[ $option == operand ]]; then
    case $operand_kind in
      keys | patterns) _dlock_offer_values --key ;;
      verb) ((operands > 0)) || _dlock_offer open arrive wait ;;
    esac
  elif [[ -n $option ]]; then
    _dlock_offer_values "$option"
  elif [[ $current == --*=* ]]; then
    option=${current%%=*}
    kept=${kept#"$option="} current=${current#*=}
    if [[ " $options " == *" $option= "* ]]; then _dlock_offer_values "$option"; fi
  elif [[ $current == -* ]]; then
    _dlock_offer ${options//=/}
  fi
}

complete -F _dlock dlock
