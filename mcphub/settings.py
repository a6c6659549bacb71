"""All settings, read from the environment. Invalid values fail at start-up with the variable's name.

With no variable set, the hub runs embedded: SQLite, an in-memory broker and an in-memory channel layer, with its state
in `.mcphub/` beside `manage.py`, or in the current directory where it is installed without a checkout.
"""

import os
import secrets
import warnings
from contextlib import suppress
from pathlib import Path

from celery.schedules import crontab
from csp.constants import NONE, SELF, UNSAFE_EVAL, UNSAFE_INLINE
from django.core.exceptions import ImproperlyConfigured
from kombu import Exchange, Queue

from mcphub import environment as env
from tools_app.core.telemetry.scrubbing import hide, hide_password_of

CHECKOUT = Path(__file__).resolve().parent.parent
IS_CHECKOUT = (CHECKOUT / "manage.py").is_file()
# Holds `templates/` and the documentation; setup.py copies both into the package for installations without a checkout.
BASE_DIR = CHECKOUT if IS_CHECKOUT else CHECKOUT / "mcphub" / "installed"

MCPHUB_DATA_DIR = env.directory("MCPHUB_DATA_DIR", (BASE_DIR if IS_CHECKOUT else Path.cwd()) / ".mcphub")


def generated_secret(path: Path) -> str:
    """Return the secret in `path`, created on first use and readable by its owner only."""
    try:
        if not path.exists():
            _make_secret(path)
        secret = path.read_text().strip()
    except (OSError, UnicodeError) as problem:
        reason = getattr(problem, "strerror", None) or "not a text"
        raise ImproperlyConfigured(
            f"MCPHUB_DATA_DIR: {path} cannot be read or made ({reason}). This user must be able to write in "
            f"{path.parent}, on a disk that has room."
        ) from problem
    if not secret:
        raise ImproperlyConfigured(
            f"{path} is empty. Restore it from a backup; without one, delete it to make another."
        )
    return secret


def _make_secret(path: Path) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(64))
        # Linked once it is complete: if several processes start at once, one wins and none reads a partial secret.
        with suppress(FileExistsError):
            path.hardlink_to(draft)
    finally:
        draft.unlink(missing_ok=True)


# Signs cookies and derives the keys that encrypt secrets and arguments at rest. All processes need the same value.
SECRET_KEY = env.text("MCPHUB_SECRET_KEY") or generated_secret(MCPHUB_DATA_DIR / "secret.key")
# Earlier values of MCPHUB_SECRET_KEY, newest first, for decrypting older data.
SECRET_KEY_FALLBACKS = env.items("MCPHUB_SECRET_KEY_FALLBACKS")
# Signs statements about the audit log. Separate from the secret key: a verifier may have one without the other.
MCPHUB_AUDIT_KEY = env.key_text("MCPHUB_AUDIT_KEY") or generated_secret(MCPHUB_DATA_DIR / "audit.key")
# Public keys of other hosts, and of earlier audit keys, whose signatures are accepted.
MCPHUB_AUDIT_PUBLIC_KEYS = env.public_keys("MCPHUB_AUDIT_PUBLIC_KEYS")
# Where each new checkpoint is sent: a machine other than the one whose records it signs.
MCPHUB_AUDIT_CHECKPOINTS_URL = env.witness("MCPHUB_AUDIT_CHECKPOINTS_URL")

DEBUG = env.flag("MCPHUB_DEBUG")
ALLOWED_HOSTS = env.hosts("MCPHUB_ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"])

# --- Applications ---------------------------------------------------------------------------------------------

INSTALLED_APPS = [
    "daphne",
    # The basic configuration: the hub has a custom admin site (`tools_app.web.admin.site`).
    "unfold.apps.BasicAppConfig",
    "unfold.contrib.filters",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "channels",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "tools_app",
    # The operator's apps, each with an `mcp_tools.py`.
    *env.apps("MCPHUB_APPS"),
]

MIDDLEWARE = [
    # Measures the whole time of a page.
    # Outermost, so that files, redirects and errors get the headers too.
    "csp.middleware.CSPMiddleware",
    "tools_app.web.middleware.response_headers",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "tools_app.web.middleware.acting_person",
    "allauth.account.middleware.AccountMiddleware",
    "tools_app.web.middleware.viewers_zone",
    "django.contrib.messages.middleware.MessageMiddleware",
    "tools_app.identity.sign_in.required_factor.RequiredFactor",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "mcphub.urls"
ASGI_APPLICATION = "mcphub.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "libraries": {name: f"tools_app.web.admin.{name}" for name in ("tables", "times")},
        },
    },
]

# --- Stores ---------------------------------------------------------------------------------------------------

DATABASES = {"default": env.database("DATABASE_URL", MCPHUB_DATA_DIR / "hub.sqlite3")}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"]["ENGINE"] = "tools_app.core.sqlite"
    DATABASES["default"]["OPTIONS"] = {
        "timeout": 20,
        "transaction_mode": "IMMEDIATE",
        # FULL: a committed transaction survives a power cut, as "durable" promises.
        "init_command": (
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; "
            "PRAGMA journal_size_limit=67108864; PRAGMA wal_autocheckpoint=4000;"
        ),
    }
    # Tests use a file too: the recorder writes over a separate connection, which cannot share ":memory:".
    DATABASES["default"]["TEST"] = {"NAME": str(MCPHUB_DATA_DIR / "test.sqlite3")}
else:
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
    # Detects an unreachable host within seconds; options in the URL take precedence.
    DATABASES["default"]["OPTIONS"] = {
        "connect_timeout": 3,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
        **DATABASES["default"].get("OPTIONS", {}),
    }
# `?conn_max_age=0` in the URL closes a connection after each request.
DATABASES["default"].setdefault("CONN_MAX_AGE", 60)

REDIS_URL = env.redis("REDIS_URL")
# Of the keys in Redis and of the names of the Celery queues: hubs that share a broker have one each.
MCPHUB_PREFIX = env.text("MCPHUB_PREFIX", "mcphub")
# The longest wait for a Redis server that is frozen or unreachable.
REDIS_TIMEOUTS = {"socket_timeout": 5.0, "socket_connect_timeout": 2.0}
if REDIS_URL:
    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [{"address": REDIS_URL, **REDIS_TIMEOUTS}], "prefix": MCPHUB_PREFIX},
        }
    }
else:
    CHANNEL_LAYERS = {"default": {"BACKEND": "tools_app.core.notifications.layer.LocalChannelLayer"}}

# --- Celery ---------------------------------------------------------------------------------------------------

CELERY_BROKER_URL = env.broker("CELERY_BROKER_URL", REDIS_URL or "memory://localhost/")
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = MCPHUB_PREFIX
# Shards of the queue, which workers serve in rotation: one tenant's backlog does not delay the others.
MCPHUB_QUEUE_SHARDS = 16
CELERY_TASK_QUEUES = [
    Queue(name, Exchange(CELERY_TASK_DEFAULT_QUEUE), routing_key=name)
    for name in (
        CELERY_TASK_DEFAULT_QUEUE,
        *(f"{CELERY_TASK_DEFAULT_QUEUE}.{shard}" for shard in range(MCPHUB_QUEUE_SHARDS)),
    )
]
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# After a lost connection, too: running calls were acknowledged when they started.
CELERY_WORKER_ENABLE_PREFETCH_COUNT_REDUCTION = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# Of the messages that cancel calls and ask workers for their state.
CELERY_CONTROL_EXCHANGE = f"{MCPHUB_PREFIX}.control"
CELERY_EVENT_EXCHANGE = f"{MCPHUB_PREFIX}.events"
CELERY_BEAT_SCHEDULE = {
    # A nightly pruning that no worker took is not repeated: the next one covers it.
    "prune": {"task": "tools_app.prune", "schedule": crontab(hour=3, minute=20), "options": {"expires": 12 * 3600}},
}
# Fail a call soon when the broker is unreachable: by default, publishing would wait for it.
BROKER_RETRIES = {"max_retries": 1, "interval_start": 0.1, "interval_max": 0.1}
CELERY_BROKER_CONNECTION_TIMEOUT = 2.0
# The heartbeat interval of an AMQP connection.
CELERY_BROKER_HEARTBEAT = 10
REDIS_BROKER_OPTIONS = {
    **REDIS_TIMEOUTS,
    **BROKER_RETRIES,
    # One list for each queue in place of four: no call has a priority.
    "priority_steps": [0],
    # No second copy of each message in Redis: the database has the calls, and those that no worker claimed are queued
    # again.
    "ack_emulation": False,
}
if CELERY_BROKER_URL.startswith("redis"):
    CELERY_BROKER_TRANSPORT_OPTIONS = REDIS_BROKER_OPTIONS
elif CELERY_BROKER_URL.startswith(("amqp", "pyamqp")):
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        **BROKER_RETRIES,
        "read_timeout": 5.0,
        "write_timeout": 5.0,
        # A published message is in the broker, not only in a socket's buffer.
        "confirm_publish": True,
    }
# Workers reconnect to the broker without limit.
CELERY_BROKER_CONNECTION_MAX_RETRIES = None

# --- The hub --------------------------------------------------------------------------------------------------

MCPHUB_ALLOWED_ORIGINS = env.origins("MCPHUB_ALLOWED_ORIGINS")
MCPHUB_PUBLIC_URL = env.origin("MCPHUB_PUBLIC_URL")
# The number of trusted proxies in front of the hub (X-Forwarded-For).
MCPHUB_TRUSTED_PROXIES = env.whole("MCPHUB_TRUSTED_PROXIES", 0, least=0, most=100)
MCPHUB_MAX_BODY_BYTES = env.whole("MCPHUB_MAX_BODY_BYTES", 4 * 1024 * 1024)
MCPHUB_MAX_ARGUMENT_BYTES = env.whole("MCPHUB_MAX_ARGUMENT_BYTES", 1024 * 1024)
MCPHUB_MAX_RESULT_BYTES = env.whole("MCPHUB_MAX_RESULT_BYTES", 16 * 1024 * 1024)
MCPHUB_MAX_PAYLOAD_BYTES = env.whole("MCPHUB_MAX_PAYLOAD_BYTES", 64 * 1024)
# Days that calls are kept where a tenant does not set its own number; 0 keeps them forever.
MCPHUB_KEEP_DAYS = env.whole("MCPHUB_KEEP_DAYS", 0, least=0, most=36_500)
MCPHUB_SESSION_IDLE_TIMEOUT = env.seconds("MCPHUB_SESSION_IDLE_TIMEOUT", 24 * 3600.0)
MCPHUB_QUEUE_TIMEOUT = env.seconds("MCPHUB_QUEUE_TIMEOUT", 300.0)
MCPHUB_PROCESS_TIMEOUT = env.seconds("MCPHUB_PROCESS_TIMEOUT", 5.0)
MCPHUB_DRAIN_TIMEOUT = env.seconds("MCPHUB_DRAIN_TIMEOUT", 10.0)
MCPHUB_ELICITATION_TIMEOUT = env.seconds("MCPHUB_ELICITATION_TIMEOUT", 600.0)
MCPHUB_MAX_TASK_TTL = env.seconds("MCPHUB_MAX_TASK_TTL", 3600.0)
MCPHUB_KEEPALIVE_INTERVAL = env.seconds("MCPHUB_KEEPALIVE_INTERVAL", 3.0)
# Requests of one person to the REST API; 0 is no limit. Each web process counts separately.
MCPHUB_API_REQUESTS_PER_MINUTE = env.whole("MCPHUB_API_REQUESTS_PER_MINUTE", 600, least=0)
# The command lines that upstreams of tenants may run; `*` as the last word allows any further arguments.
MCPHUB_UPSTREAM_COMMANDS = env.command_lines("MCPHUB_UPSTREAM_COMMANDS")
# Directories that such commands may read, besides those of the system, and whether they may open TCP connections.
MCPHUB_UPSTREAM_PATHS = env.full_paths("MCPHUB_UPSTREAM_PATHS")
MCPHUB_UPSTREAM_NETWORK = env.flag("MCPHUB_UPSTREAM_NETWORK")
MCPHUB_WORKER_THREADS = env.whole("MCPHUB_WORKER_THREADS", 8, most=1000)

# The first admin's password and the demo tenant's first key, as `up` creates them; generated when empty.
MCPHUB_ADMIN_PASSWORD = env.text("MCPHUB_ADMIN_PASSWORD")
MCPHUB_DEMO_API_KEY = env.text("MCPHUB_DEMO_API_KEY")
# The key that `mcp_stdio` uses when the command line has none.
MCPHUB_API_KEY = env.text("MCPHUB_API_KEY")

# --- Pages ----------------------------------------------------------------------------------------------------

LANGUAGE_CODE = "en"
# Texts of packages in the words of the hub.
LOCALE_PATHS = [CHECKOUT / "tools_app" / "locale"]
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"
# Served from the packages: no collectstatic before the first start.
WHITENOISE_USE_FINDERS = True
# The files are small: Django's warning that it reads each of them whole is no use to an operator.
warnings.filterwarnings("ignore", "StreamingHttpResponse must consume synchronous iterators")
LOGIN_URL = "admin:login"
# Second factors, by django-allauth. People log in on the admin's own page.
ACCOUNT_ADAPTER = "tools_app.identity.sign_in.accounts.AccountAdapter"
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_USER_MODEL_EMAIL_FIELD = "email"
MFA_ADAPTER = "tools_app.identity.sign_in.accounts.FactorAdapter"
MFA_FORMS = {
    "authenticate": "tools_app.identity.sign_in.accounts.LoginCodeForm",
    "reauthenticate": "tools_app.identity.sign_in.accounts.ReauthenticationCodeForm",
}
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_RECOVERY_CODES_SHOW_ONCE = True
# The codes of the time step before and after count, too: clocks differ.
MFA_TOTP_TOLERANCE = 1
# Browsers allow security keys without HTTPS on localhost only.
MFA_WEBAUTHN_ALLOW_INSECURE_ORIGIN = not env.flag("MCPHUB_HTTPS")
# For people who open the login page directly.
LOGIN_REDIRECT_URL = "admin:index"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

# Files served from the root, such as `/favicon.ico`.
WHITENOISE_ROOT = CHECKOUT / "tools_app" / "static" / "tools_app" / "root"

# The policy of pages, none of which has an inline script. `tools_app.web.middleware` has the policy of all
# other responses.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        # unfold's pages use Alpine.js, which compiles expressions in the browser.
        "script-src": [SELF, UNSAFE_EVAL],
        "script-src-attr": [NONE],
        # Attributes only: unfold's templates and Alpine.js set some.
        "style-src": [SELF, UNSAFE_INLINE],
        "style-src-elem": [SELF],
        "style-src-attr": [UNSAFE_INLINE],
        # The playground shows images and audio in results as data URLs.
        "img-src": [SELF, "data:"],
        "media-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "object-src": [NONE],
        "frame-ancestors": [NONE],
    }
}

UNFOLD = {
    "SITE_TITLE": "mcphub",
    "SITE_HEADER": "mcphub",
    "SITE_SUBHEADER": "MCP tools for many tenants",
    "SITE_SYMBOL": "hub",
    "SITE_URL": None,
    "STYLES": ["tools_app.web.admin.site.colors", "tools_app.web.admin.site.style"],
    "SCRIPTS": [f"tools_app.web.admin.site.{name}_script" for name in ("zone", "htmx", "times", "drafts")],
    "ACCOUNT": {
        "navigation": [
            {"title": "Connections", "link": "/connections"},
            {"title": "Second factor", "link": "/account/factors/"},
        ]
    },
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": "tools_app.web.admin.site.favicon"}],
    "SIDEBAR": {
        "show_search": True,
        "command_search": True,
    },
}

REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_SCHEMA_CLASS": "tools_app.web.api.openapi.Described",
}

SPECTACULAR_SETTINGS = {
    "TITLE": "mcphub REST API",
    "DESCRIPTION": "What [the admin's pages](/admin/) do, for scripts. See [the documentation](/docs/api/).",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "ENUM_NAME_OVERRIDES": {
        "CallStatusEnum": "tools_app.models.CallStatus",
        "KeyStatusEnum": "tools_app.tenants.serializers.KEY_STATES",
        "ResourceKindEnum": "tools_app.models.ResourceKind",
        "AlertKindEnum": "tools_app.models.AlertKind",
        "AlertDestinationKindEnum": "tools_app.models.DestinationKind",
        "AlertDeliveryStatusEnum": "tools_app.models.DeliveryStatus",
        "InvitationStatusEnum": "tools_app.tenants.serializers.INVITATION_STATES",
        "ExportStateEnum": "tools_app.models.ExportState",
        "ApiSourceStateEnum": "tools_app.models.RevisionState",
        "UpstreamCredentialKindEnum": "tools_app.models.CredentialKind",
    },
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "COMPONENT_SPLIT_REQUEST": True,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "docExpansion": "none", "filter": True, "validatorUrl": None},
    "PREPROCESSING_HOOKS": ["tools_app.web.api.openapi.own_endpoints"],
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "tools_app.web.api.openapi.complete",
    ],
}

# --- Behind HTTPS ---------------------------------------------------------------------------------------------

if env.flag("MCPHUB_HTTPS"):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_SSL_REDIRECT = True
    SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]
    SECURE_HSTS_SECONDS = 365 * 24 * 3600
    SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    SECURE_HSTS_PRELOAD = True
    SESSION_COOKIE_SECURE = True
    CSRF_COOKIE_SECURE = True
CSRF_FAILURE_VIEW = "tools_app.web.admin.errors.csrf_failure"
CSRF_TRUSTED_ORIGINS = MCPHUB_ALLOWED_ORIGINS
SESSION_COOKIE_HTTPONLY = True

# --- E-mail ---------------------------------------------------------------------------------------------------

# The server that sends invitations; without one, the person who invites passes on the link.
MCPHUB_EMAIL_URL = env.text("MCPHUB_EMAIL_URL")
globals().update(env.email("MCPHUB_EMAIL_URL"))
DEFAULT_FROM_EMAIL = MCPHUB_EMAIL_FROM = env.sender("MCPHUB_EMAIL_FROM", "mcphub@localhost")
# A person waits for the result.
EMAIL_TIMEOUT = 10

# --- Monitoring -----------------------------------------------------------------------------------------------

# The bearer token for /metrics; without one, only superusers may read it.
MCPHUB_METRICS_TOKEN = env.text("MCPHUB_METRICS_TOKEN")
MCPHUB_METRICS_BY_TENANT = env.flag("MCPHUB_METRICS_BY_TENANT")

LOG_LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
LOG_LEVEL = env.choice("MCPHUB_LOG_LEVEL", LOG_LEVELS, "WARNING")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": "tools_app.core.telemetry.logs.formatter",
            "style": env.choice("MCPHUB_LOG_FORMAT", ["TEXT", "JSON"], "TEXT"),
        }
    },
    "filters": {"without_traceback": {"()": "tools_app.core.telemetry.logs.WithoutTraceback"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        # Their default handlers would bypass the formatter that removes secrets.
        **{name: {"handlers": [], "propagate": True} for name in ("uvicorn", "uvicorn.access", "uvicorn.error")},
        # Logs a warning for each missing page and each missing login: any browser or scanner causes them.
        "django.request": {"level": "ERROR" if LOG_LEVEL == "WARNING" else LOG_LEVEL},
        "django.security": {"filters": ["without_traceback"]},
        "django.security.DisallowedHost": {"filters": ["without_traceback"]},
        **{name: {"level": "INFO"} for name in ("httpcore", "httpcore2", "websockets")},
    },
}
hide(
    SECRET_KEY,
    *SECRET_KEY_FALLBACKS,
    MCPHUB_AUDIT_KEY,
    *(MCPHUB_ADMIN_PASSWORD, MCPHUB_DEMO_API_KEY, MCPHUB_API_KEY, MCPHUB_METRICS_TOKEN),
)
hide_password_of(env.text("DATABASE_URL"), REDIS_URL, CELERY_BROKER_URL, MCPHUB_EMAIL_URL)
# Variables that are set and never read, misspelt for instance, each with a hint.
MCPHUB_UNKNOWN_VARIABLES = env.unknown()
