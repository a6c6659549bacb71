"""Released migrations are not changed, because existing databases have run them."""

from hashlib import sha256
from pathlib import Path

import pytest
from django.conf import settings

# The SHA-256 of each file. A new migration adds its line.
LANDED = {
    "0001_squashed_0031_used_assertions.py": "83f3effe486ed6db9ed48544e116a7a19dc9e33406e4b4de1a606741007cd8a4",
    "0001_initial.py": "4464be6ab20b0b268a0cbbae7cacd629717f7b9ab6af0c4249fb2ffc6b1b8fec",
    "0002_tasks_and_channels.py": "d239fa189c926190fbbb92c06bcafcb1a8bde81e1cb8093c589644b4f99dcc5c",
    "0003_limits_evidence_retention.py": "f34a831a58613a738cbd17ad3ba7a85b1f9f753e087367810fe92c57258db37d",
    "0004_tamper_evidence.py": "a94b0e360b489d73396021d20638412bacdccfac2d0dd44147e2b920c428a9d2",
    "0005_partitions.py": "54f487a32ec883d93fe5e3eda8a5d357da111c952d64a00d81d32d25f9d81688",
    "0006_lighter_indexes.py": "beabbd37d367f5856d56f2649285fee4a4725d35b196784bb673222bc5b0106a",
    "0007_admin_and_api.py": "556d13085628468ed9e24af8a630f3c69131a7ab7b1db796e97d63660eb94368",
    "0008_record_hash_version.py": "eedfea47ef904c28b6d7dfdb640defc66aacb17c8b54427d33cf9da8254a3446",
    "0009_outcome_not_started.py": "df72e88fb12ec8f06846ad6f196bd83d09f3284b6d5908d2ced0d10248a5bacd",
    "0010_invitation_help.py": "2227ba9bfd739560e70f4e78e0b39f14426d316bff12689a3d41228a889a4922",
    "0011_open_sessions_index.py": "09027f4206e4bf9799fec952bf264892cf0aab3a606a9dc19723a44970fe0ff2",
    "0012_alerts.py": "23a30b431bc4c646489cae66cd8e5fa897cec748321aea9b5c2411ada84107e5",
    "0013_oauth.py": "2f04822a2eb97f42136ade4934d18b69a33fc6ed9ff7cd6f0bc9bf633882238e",
    "0014_device_and_service_clients.py": "005a6e4aeab87cf1d159a22339ed3aa5e8e7874faa9929b12c648726c86a175e",
    "0015_issuers.py": "fd8ffaa4bde7770e1b54cf0292cd5db6d2d6adfd5016667b1af532e7a302d2e7",
    "0016_api_sources.py": "63e7d59032f689f14722b329e92cf31054ce7d78e3a7f5bb16747bb3a92edeb9",
    "0017_upstreams.py": "1bc7d3c1e3abf084add37cc06ca4d6ef3c665a2f46b921001484767b73cc964e",
    "0018_workloads.py": "b25801e45b9e82c818ee85e6aa3c0cb1d2ca5f3e6cfb1249e8ef9512971f9332",
    "0019_directory.py": "0776cbadedf51f44c48fa85dd827248679f580eab350be19c558015b69319729",
    "0020_model_names.py": "43fed33e1c52879068abe990068314e87f5ba5b1f6276f6dc592b988cf6d9293",
    "0021_upstream_questions.py": "0a842a70a56cba83f72afb4a2e7c1ba6232bab92841421a383db95be6e557f02",
    "0022_toolsets.py": "2a4f8efcbf8e510f22ced4f7d47c3742dd9a2af3b223d2fe258e9ec10edabdb4",
    "0023_django_tools.py": "69069011d795db021ac632b8cf2621383b5f43ca17a6734f795c55c71046eeec",
    "0024_direct_tokens.py": "212b048dd4ff2036cd110efd5dc95097fa4e5b155e1da229d9dfa4131c8cdfd3",
    "0025_saml.py": "fe4cd84a2f801d03f888a87679c45ce4a2ac5ea0a6f4336e147f1222803390ce",
    "0026_asserted_connections.py": "5f69cc1cc3522fba0cd3be939e0e792793930413f72e57bfe47b5d43fa4b1fa7",
    "0027_upstream_credentials.py": "d8f2ac22b85e4e8fa76ba6c3b5ec9adb486789310218e9fd9f93996e42253f7e",
    "0028_shaping_and_person.py": "a519abdd765275cbaf705c77683dea5bbed2a1203b358db990369baf5c3b102e",
    "0029_upstream_issuer_and_claims.py": "86e0187ec9fb74a3cfad1dcbcbfeb11f37fb3aefe774beda456a823bc7f8722e",
    "0030_upstream_tasks.py": "48b80e66ce1b2756e9b7ed258faca7a85c5b3ea04f04d35ef0881b81495b349f",
    "0031_used_assertions.py": "cb644a2ce645abe4d4f13f3769c7235699c430c0cfa82dc566dfaef98741193f",
    "0032_sign_in_again.py": "91580324fb733ae7f35dc7b57b6b3a50d07aa2c2f58e05be641e06a1640adf30",
    "0033_upstream_task_rows.py": "a5f5a5872be911986482920e8c2ca4b7f3aa15afc0337f6ff2332c8f3a05ff6e",
    "0034_api_source_schemas.py": "0578d00525d5fa6bad81b253ec5ebacb12c3f4d6ba8b2cfc3d6bf7652099a738",
    "0035_exact_names.py": "f27d5e771e35f32edca6feb5b2cd0fb13b89a8b81b9a12e2e4ad484edc6858ac",
    "0036_single_use.py": "487cdb7bab5e84d23a55ea65bdfc41640cd580adee3ad6bfcbe28702a38c2c14",
    "0037_claims_and_networks.py": "a9967b9cca7b86f430ac3e631b0775b98fb92b8b243b812c03bbb5e9e06ad641",
    "0038_selected_operations.py": "64940be7daec081e122eb38d33891041983f222d0ba098eb8119fa88a1e2fd33",
}
MIGRATIONS = Path(settings.BASE_DIR) / "tools_app" / "migrations"


@pytest.mark.parametrize("name", LANDED)
def test_a_landed_migration_is_never_edited(name: str) -> None:
    assert sha256((MIGRATIONS / name).read_bytes()).hexdigest() == LANDED[name], (
        f"{name} was edited after it had landed. Databases that ran it as it was will not run it again, so they would "
        "differ from new ones: undo the edit, and write a new migration for what is to change."
    )


def test_each_migration_is_frozen_when_it_lands() -> None:
    missing = {path.name for path in MIGRATIONS.glob("[0-9]*.py")} - set(LANDED)
    assert not missing, f"Add the SHA-256 of {', '.join(sorted(missing))} to LANDED: from then on it is frozen."
