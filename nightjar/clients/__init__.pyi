# The public names and where they live: read by type checkers, and by __init__.py to load them on first use.
from .anthropic_messages import AnthropicMessagesClient as AnthropicMessagesClient
from .anthropic_messages import setup_anthropic_client as setup_anthropic_client
from .client import Client as Client
from .config import ClientConfig as ClientConfig
from .config import ClientType as ClientType
from .config import EndpointClientConfig as EndpointClientConfig
from .config import resolve_client_config as resolve_client_config
from .config import resolve_client_configs as resolve_client_configs
from .credentials import load_prime_config as load_prime_config
from .credentials import resolve_api_key as resolve_api_key
from .openai_chat import OpenAIChatCompletionsClient as OpenAIChatCompletionsClient
from .openai_chat_token import OpenAIChatCompletionsTokenClient as OpenAIChatCompletionsTokenClient
from .openai_client import setup_openai_client as setup_openai_client
from .openai_completions import OpenAICompletionsClient as OpenAICompletionsClient
from .openai_responses import OpenAIResponsesClient as OpenAIResponsesClient
from .replicas import ReplicaClient as ReplicaClient
from .resolving import resolve_client as resolve_client
