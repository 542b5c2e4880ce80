//! The vocabulary for naming and describing made-up companies.
//!
//! Sectors, statuses, categories and cities are spelled as the regulator spells them; all names of companies, auditors
//! and issuers are invented.

/// How to build the name of a company around a place, and the sector that fits it.
pub struct Industry {
    pub name_prefix: &'static str,
    pub name_suffix: &'static str,
    pub sector: &'static str,
    pub weight: u64,
}

const fn industry(weight: u64, name_prefix: &'static str, name_suffix: &'static str, sector: &'static str) -> Industry {
    Industry { name_prefix, name_suffix, sector, weight }
}

pub const INDUSTRIES: [Industry; 56] = [
    industry(5, "CERÂMICA", "S.A.", "Construção Civil, Mat. Constr. e Decoração"),
    industry(9, "CONSTRUTORA", "S.A.", "Construção Civil, Mat. Constr. e Decoração"),
    industry(5, "COMPANHIA CIMENTEIRA", "", "Construção Civil, Mat. Constr. e Decoração"),
    industry(6, "INCORPORADORA", "S.A.", "Construção Civil, Mat. Constr. e Decoração"),
    industry(4, "", "EMPREENDIMENTOS E PARTICIPAÇÕES S.A.", "Emp. Adm. Part. - Const. Civil, Mat. Const. e Decoração"),
    industry(10, "BANCO", "S.A.", "Bancos"),
    industry(5, "BANCO DE INVESTIMENTO", "S.A.", "Bancos"),
    industry(6, "", "ARRENDAMENTO MERCANTIL S.A.", "Arrendamento Mercantil"),
    industry(9, "", "SECURITIZADORA S.A.", "Securitização de Recebíveis"),
    industry(5, "COMPANHIA SECURITIZADORA", "", "Securitização de Recebíveis"),
    industry(4, "SEGURADORA", "S.A.", "Seguradoras e Corretoras"),
    industry(2, "FINANCEIRA", "S.A.", "Intermediação Financeira"),
    industry(9, "METALÚRGICA", "S.A.", "Metalurgia e Siderurgia"),
    industry(5, "COMPANHIA SIDERÚRGICA", "", "Metalurgia e Siderurgia"),
    industry(8, "INDÚSTRIA DE MÁQUINAS", "S.A.", "Máquinas, Equipamentos, Veículos e Peças"),
    industry(5, "", "IMPLEMENTOS E MOTORES S.A.", "Máquinas, Equipamentos, Veículos e Peças"),
    industry(7, "TECELAGEM", "S.A.", "Têxtil e Vestuário"),
    industry(5, "COMPANHIA DE FIAÇÃO E TECIDOS", "", "Têxtil e Vestuário"),
    industry(7, "COMPANHIA ENERGÉTICA", "", "Energia Elétrica"),
    industry(7, "TRANSMISSORA", "DE ENERGIA ELÉTRICA S.A.", "Energia Elétrica"),
    industry(5, "DISTRIBUIDORA DE ENERGIA", "S.A.", "Energia Elétrica"),
    industry(6, "", "ENERGIA E PARTICIPAÇÕES S.A.", "Emp. Adm. Part. - Energia Elétrica"),
    industry(6, "SUPERMERCADOS", "S.A.", "Comércio (Atacado e Varejo)"),
    industry(6, "LOJAS", "S.A.", "Comércio (Atacado e Varejo)"),
    industry(4, "COMPANHIA COMERCIAL", "", "Comércio (Atacado e Varejo)"),
    industry(7, "LATICÍNIOS", "S.A.", "Alimentos"),
    industry(5, "FRIGORÍFICO", "S.A.", "Alimentos"),
    industry(4, "MOINHO", "S.A.", "Alimentos"),
    industry(6, "USINA", "S.A. - AÇÚCAR E ÁLCOOL", "Agricultura (Açúcar, Álcool e Cana)"),
    industry(4, "AGROPECUÁRIA", "S.A.", "Agricultura (Açúcar, Álcool e Cana)"),
    industry(5, "PETROQUÍMICA", "S.A.", "Petroquímicos e Borracha"),
    industry(3, "BORRACHAS", "S.A.", "Petroquímicos e Borracha"),
    industry(3, "PETRÓLEO E GÁS", "S.A.", "Petróleo e Gás"),
    industry(4, "COMPANHIA DE GÁS", "", "Saneamento, Serv. Água e Gás"),
    industry(7, "COMPANHIA DE SANEAMENTO", "", "Saneamento, Serv. Água e Gás"),
    industry(6, "TELECOMUNICAÇÕES", "S.A.", "Telecomunicações"),
    industry(4, "", "TELECOM PARTICIPAÇÕES S.A.", "Emp. Adm. Part. - Telecomunicações"),
    industry(5, "", "TECNOLOGIA E INFORMÁTICA S.A.", "Comunicação e Informática"),
    industry(7, "CONCESSIONÁRIA DE RODOVIAS", "S.A.", "Serviços Transporte e Logística"),
    industry(5, "", "LOGÍSTICA S.A.", "Serviços Transporte e Logística"),
    industry(4, "COMPANHIA DOCAS", "", "Serviços Transporte e Logística"),
    industry(4, "", "TRANSPORTES E PARTICIPAÇÕES S.A.", "Emp. Adm. Part. - Serviços Transporte e Logística"),
    industry(5, "MINERAÇÃO", "S.A.", "Extração Mineral"),
    industry(4, "PAPEL E CELULOSE", "S.A.", "Papel e Celulose"),
    industry(3, "COMPANHIA FLORESTAL", "", "Reflorestamento"),
    industry(4, "LABORATÓRIOS", "S.A.", "Farmacêutico e Higiene"),
    industry(4, "HOSPITAIS", "S.A.", "Serviços Médicos"),
    industry(3, "COMPANHIA DE HOTÉIS", "", "Hospedagem e Turismo"),
    industry(3, "CERVEJARIA", "S.A.", "Bebidas e Fumo"),
    industry(2, "EDITORA", "S.A.", "Gráficas e Editoras"),
    industry(3, "", "EDUCAÇÃO S.A.", "Educação"),
    industry(2, "EMBALAGENS", "S.A.", "Embalagens"),
    industry(2, "PESCADOS", "S.A.", "Pesca"),
    industry(14, "", "PARTICIPAÇÕES S.A.", "Emp. Adm. Participações"),
    industry(9, "COMPANHIA DE PARTICIPAÇÕES", "", "Emp. Adm. Part. - Sem Setor Principal"),
    industry(6, "", "INVESTIMENTOS E PARTICIPAÇÕES S.A.", "Emp. Adm. Part. - Intermediação Financeira"),
];

/// The first part of a place name: the kind of place.
pub const PLACE_PREFIXES: [&str; 30] = [
    "SERRA DO",
    "VALE DO",
    "ALTO",
    "CAMPO DO",
    "PORTO DO",
    "LAGOA DO",
    "MORRO DO",
    "PEDRA DO",
    "BARRA DO",
    "CHAPADA DO",
    "RIBEIRÃO DO",
    "ILHA DO",
    "POÇO DO",
    "MATA DO",
    "FAZENDA",
    "VÁRZEA DO",
    "CÓRREGO DO",
    "CAPÃO DO",
    "SERTÃO DO",
    "ESTÂNCIA DO",
    "MIRANTE DO",
    "PONTAL DO",
    "ENCOSTA DO",
    "IGARAPÉ DO",
    "RESTINGA DO",
    "CONCEIÇÃO DO",
    "BAIXIO DO",
    "GROTA DO",
    "TABULEIRO DO",
    "CACHOEIRA DO",
];

/// The two halves of a word that sounds like a Tupi place name; no pair is the name of a real company.
pub const PLACE_ROOTS: [&str; 40] = [
    "PIRA", "ITA", "JAGUA", "CARA", "TAMBO", "URU", "GUARA", "MOCO", "SUCU", "IBI", "ARA", "CURU", "JURE", "TAPI",
    "CAPI", "ABAE", "INHA", "MARA", "PACU", "SAPU", "TUCU", "BATU", "COTI", "MANDA", "JAPE", "OITI", "PITO", "QUIXA",
    "SARI", "TIMBU", "UBA", "VACU", "XERE", "ZABE", "GRAVA", "CAJU", "MURI", "PEQUI", "SERO", "BURI",
];
pub const PLACE_ENDINGS: [&str; 40] = [
    "JUÍ", "RIPÉ", "BOCÓ", "RINGA", "CATUÁ", "RAÇUÍ", "MIRÃ", "PEBAÍ", "RANOÁ", "NUÇU", "NDUVÃ", "TIBOÉ", "GUARIM",
    "MBEÚ", "RUÇÁ", "ÇABÓ", "QUAREÍ", "RITEÚ", "PURÃ", "COARÉ", "NHANGÁ", "TAMÃ", "POTIÁ", "RIBÓ", "XIMBÉ", "ÇARÊ",
    "LANDIM", "MERUÁ", "NEMBI", "PIÚNA", "BAROÁ", "GIBÃO", "LUÁ", "SOROÍ", "VAREÚ", "ZIMBÓ", "DARÉ", "FURÁ", "GOIM",
    "TROÇÃO",
];

/// When prefixes and place names run out, an additional word keeps companies distinct.
pub const PLACE_QUALIFIERS: [&str; 12] = [
    "",
    "DO NORTE",
    "DO SUL",
    "DO LESTE",
    "DO OESTE",
    "DO CENTRO",
    "DE CIMA",
    "DE BAIXO",
    "VELHO",
    "NOVO",
    "GRANDE",
    "PEQUENO",
];

pub const CITIES: [(&str, &str); 24] = [
    ("SÃO PAULO", "SP"),
    ("SÃO PAULO", "SP"),
    ("SÃO PAULO", "SP"),
    ("RIO DE JANEIRO", "RJ"),
    ("RIO DE JANEIRO", "RJ"),
    ("BELO HORIZONTE", "MG"),
    ("PORTO ALEGRE", "RS"),
    ("CURITIBA", "PR"),
    ("BARUERI", "SP"),
    ("OSASCO", "SP"),
    ("CAMPINAS", "SP"),
    ("FORTALEZA", "CE"),
    ("SALVADOR", "BA"),
    ("CAMAÇARI", "BA"),
    ("RECIFE", "PE"),
    ("BRASÍLIA", "DF"),
    ("JOINVILLE", "SC"),
    ("BLUMENAU", "SC"),
    ("FLORIANÓPOLIS", "SC"),
    ("CAXIAS DO SUL", "RS"),
    ("BELÉM", "PA"),
    ("MANAUS", "AM"),
    ("GOIÂNIA", "GO"),
    ("VITÓRIA", "ES"),
];

pub const AUDITORS: [&str; 10] = [
    "BRISEIDA AUDITORES INDEPENDENTES LTDA.",
    "VALMORANTE AUDITORES INDEPENDENTES S/S",
    "LUCENTIM & TORREALVA AUDITORES ASSOCIADOS",
    "PEDRAGÃO AUDITORES INDEPENDENTES LTDA.",
    "SOLIVANTE AUDITORIA E CONTABILIDADE S/S",
    "MARESÓPOLIS AUDITORES INDEPENDENTES",
    "CANDOVAL AUDITORES INDEPENDENTES LTDA.",
    "TORREALVA AUDITORES INDEPENDENTES S/S",
    "SERIGUELO AUDITORES",
    "",
];

/// Foreign issuers of depositary receipts: they file, but are not in the registry.
pub const FOREIGN_ISSUERS: [&str; 14] = [
    "NORTHWICKE MERIDIAN HOLDINGS PLC",
    "OAKENVALE RESOURCES LTD.",
    "CALDERBROOKE FINANCIAL GROUP INC.",
    "TAMARISKE MINING CORPORATION",
    "SILVERFENNE LOGISTICS N.V.",
    "BLUEHERNE ENERGY LTD.",
    "ESTRELLA DEL OMBÚ S.A.",
    "KINGSMERRE SHIPPING LIMITED",
    "VALDORAGO CAPITAL LTD.",
    "WINDEMOOR AGRI HOLDINGS INC.",
    "QUARTZMERE TECHNOLOGIES INC.",
    "PUERTO LAZÚLI INVERSIONES S.A.",
    "HARTSWOLDE BREWERIES PLC",
    "GRANITARRA CEMENTS LTD.",
];
